// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart with the real helm, and the rendered objects with a real API server.
package chart

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	releaseNamespace = "heirloom-system"
	fleetNamespace   = "fleet"
)

// values are values of the chart.
type values = map[string]any

func chartDir(t *testing.T) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return filepath.Join(root, "deploy", "chart", "heirloom")
}

// render renders the chart with values that replace its own.
func render(t *testing.T, over values) ([]unstructured.Unstructured, error) {
	t.Helper()
	return controlplane.RenderChart(t.Context(), chartDir(t), controlplane.ChartOptions{Namespace: releaseNamespace, Values: over})
}

// everything returns values that change every argument of the program and enable every option.
func everything() values {
	return values{
		"watchNamespace": fleetNamespace, "watchFilter": "blue", "syncPeriod": "1h30m", "noExecuteRate": 0.5, "noExecute": "budgets", "noExecuteDeadline": "1h", "mode": "observe", "enrollment": "labelled",
		"managementCluster": fleetNamespace + "/self", "clusterAPITaintPropagation": "enabled", "insecureDiagnostics": true,
		"additionalSyncMachineLabels": []any{`^example\.com/`}, "additionalSyncMachineAnnotations": []any{"note$"},
		"additionalProviderGroups": []any{"infrastructure.example.com"}, "perClusterSyncAllowed": []any{"example.com/*", "team"},
		"facts":                 []any{values{"group": "infrastructure.example.com", "kind": "AcmeMachine", "fieldPath": "metadata.labels['a/b']", "label": "example.com/b"}},
		"zoneFromFailureDomain": true, "workerRole": "worker", "startupGates": values{"daemonSets": true},
		"requiredKeys": []any{values{"label": "team", "kind": "MachineDeployment"}, values{"annotation": "a/b", "kind": "Cluster", "action": "warn"}},
		"workloadClusters": values{
			"admission": "webhook", "webhookURL": "https://heirloom.example.com:8443/base",
			"concurrency": 2000000, "clientQPS": 0.5, "clientBurst": 2000000,
			"service": values{
				"type": "LoadBalancer", "annotations": values{"example.com/internal": "true"}, "labels": values{"a": "b"}, "nodePort": 30443,
				"loadBalancerClass": "example.com/internal", "loadBalancerSourceRanges": []any{"192.0.2.0/24", "2001:db8::/32"},
				"externalTrafficPolicy": "Local", "ipFamilyPolicy": "SingleStack", "ipFamilies": []any{"IPv4"},
			},
		},
		"kubeAPI":        values{"qps": 2000000, "burst": 2000000},
		"leaderElection": values{"enabled": true, "leaseDurationSeconds": 60, "renewDeadlineSeconds": 40, "retryPeriodSeconds": 5},
		"tls": values{
			"minVersion": "VersionTLS13", "cipherSuites": []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "curvePreferences": []any{29, 4588},
		},
		"logging":       values{"verbosity": 4, "format": "json", "flushFrequency": "1s"},
		"networkPolicy": values{"enabled": true, "metricsFrom": []any{values{"namespaceSelector": values{}}}, "workloadFrom": []any{values{"ipBlock": values{"cidr": "192.0.2.0/24"}}}},
		"replicaCount":  3, "drainSeconds": 30, "ports": values{"webhook": 19443, "workload": 19444, "health": 19440, "metrics": 18443},
		"podDisruptionBudget":       values{"minAvailable": "50%"},
		"strategy":                  values{"rollingUpdate": values{"maxUnavailable": "10%", "maxSurge": "20%"}},
		"priorityClassName":         "system-cluster-critical",
		"topologySpreadConstraints": []any{values{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}},
		"affinity":                  values{"podAntiAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": []any{values{"topologyKey": "kubernetes.io/hostname"}}}},
		"podLabels":                 values{"team": "platform"}, "podAnnotations": values{"example.com/note": "x"},
		"extraEnv":         []any{values{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}},
		"imagePullSecrets": []any{values{"name": "registry"}, "other"}, "image": values{"digest": "sha256:" + strings.Repeat("a", 64)},
		"global": values{
			"imageRegistry": "registry.example.com/proxy", "imagePullSecrets": []any{"other", values{"name": "all"}},
			"nodeSelector": values{"pool": "system"}, "tolerations": []any{values{"key": "system", "operator": "Exists"}},
		},
		"volumes":      []any{values{"name": "bundle", "configMap": values{"name": "bundle"}}},
		"volumeMounts": []any{values{"name": "bundle", "mountPath": "/etc/ssl/certs", "readOnly": true}},
		"extraObjects": []any{
			values{"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "{{ include \"heirloom.fullname\" . }}-more", "namespace": "{{ .Release.Namespace }}"}},
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-more\n  namespace: {{ .Release.Namespace }}\n",
		},
		"runtimeClassName": "gvisor", "dnsPolicy": "None", "dnsConfig": values{"nameservers": []any{"192.0.2.53"}, "options": []any{values{"name": "ndots", "value": "1"}}},
		"hostAliases":       []any{values{"ip": "192.0.2.1", "hostnames": []any{"api.example.com"}}},
		"commonAnnotations": values{"example.com/owner": "platform"}, "deploymentAnnotations": values{"example.com/reload": "true"},
		"revisionHistoryLimit": 5, "automountServiceAccountToken": true,
		"service": values{"annotations": values{"example.com/a": "b"}, "labels": values{"a": "b"}, "ipFamilyPolicy": "PreferDualStack", "ipFamilies": []any{"IPv4"}},
		"serviceAccount": values{
			"name": "other", "annotations": values{"example.com/role": "x"}, "labels": values{"a": "b"}, "automountServiceAccountToken": false,
		},
		"webhooks":     values{"namespaceSelector": aSelector("a"), "objectSelector": aSelector("b"), "annotations": values{"admissions.enforcer/disabled": "true"}, "clientCA": values{"configMapName": "clients", "key": "clients.pem", "names": []any{"api-server"}}, "validation": values{"failurePolicy": "Fail", "timeoutSeconds": 10}},
		"certificates": values{"certManager": values{"duration": "2160h", "issuerRef": values{"name": "ca", "kind": "ClusterIssuer"}}},
		"monitoring": values{
			"readers":        []any{values{"name": "prometheus", "namespace": "monitoring"}},
			"serviceMonitor": values{"enabled": true, "interval": "30s", "labels": values{"release": "prometheus"}, "annotations": values{"a": "b"}},
			"prometheusRule": values{
				"enabled": true, "annotations": values{"a": "b"}, "runbookBaseURL": "https://runbooks.example.com/heirloom/",
				"alerts": values{"HeirloomDrift": values{"severity": "info"}, "HeirloomAbsent": values{"enabled": false}},
			}, "dashboard": values{"enabled": true},
		},
	}
}

// aSelector returns a selector with a label and an expression.
func aSelector(key string) values {
	return values{"matchLabels": values{key: "x"}, "matchExpressions": []any{values{"key": key, "operator": "In", "values": []any{"x", "y"}}}}
}
