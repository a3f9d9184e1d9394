// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	. "github.com/onsi/gomega"
)

func metadataMeanings() []meaning {
	const annotation, label = ".metadata.annotations['example\\.com/a']", ".metadata.labels['example\\.com/a']"
	a := values{"example.com/a": "own"}
	common := values{"commonAnnotations": values{"example.com/a": "common"}}
	with := func(own values) values {
		own["commonAnnotations"] = common["commonAnnotations"]
		return own
	}
	account := with(values{"serviceAccount": values{"annotations": a, "labels": a}})
	return []meaning{
		{"deployment", with(values{"deploymentAnnotations": a}), theDeployment, annotation, `"own"`},
		{"deployment", common, theDeployment, annotation, `"common"`},
		{"not the Pods", common, theDeployment, ".spec.template.metadata.annotations", `{"kubectl.kubernetes.io/default-container": "manager"}`},
		{"the hook stays one", common, theHook, ".metadata.annotations['helm\\.sh/hook']", `"pre-delete"`},
		{"account", account, "ServiceAccount heirloom", annotation, `"own"`},
		{"account", account, "ServiceAccount heirloom", label, `"own"`},
		{"the chart's labels stay", values{"serviceAccount": values{"labels": values{"app.kubernetes.io/name": "x"}}}, "ServiceAccount heirloom",
			".metadata.labels['app\\.kubernetes\\.io/name']", `"heirloom"`},
		{"a string", values{"extraObjects": []any{"{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-x'}}"}},
			"ConfigMap heirloom-x", ".kind", `"ConfigMap"`},
		{"an object", values{"extraObjects": []any{values{"apiVersion": "v1", "kind": "Secret", "metadata": values{"name": "{{ .Values.image.repository | base }}-x"}}}},
			"Secret heirloom-x", ".kind", `"Secret"`},
	}
}

func serviceMeanings() []meaning {
	const reached, workload = "Service heirloom-webhook", "Service heirloom-workload"
	service := values{
		"type": "LoadBalancer", "annotations": values{"a": "b"}, "labels": values{"a": "b"}, "nodePort": 30443, "loadBalancerClass": "example.com/x",
		"loadBalancerSourceRanges": []any{"192.0.2.0/24"}, "externalTrafficPolicy": "Local", "ipFamilyPolicy": "SingleStack", "ipFamilies": []any{"IPv6"},
	}
	const url = "https://heirloom.example.com"
	over := values{"workloadClusters": values{"webhookURL": url, "service": service}}
	own := values{"service": values{
		"annotations": values{"a": "b"}, "labels": values{"a": "b"}, "type": "NodePort", "ipFamilyPolicy": "SingleStack", "ipFamilies": []any{"IPv6"},
	}}
	usual := values{"workloadClusters": values{"webhookURL": url}}
	closed := values{"workloadClusters": values{"webhookURL": url}, "networkPolicy": values{"enabled": true}}
	all := []meaning{
		{"usual", usual, workload, ".spec", `{"type": "ClusterIP", "selector": {"app.kubernetes.io/name": "heirloom",
			"app.kubernetes.io/instance": "heirloom", "app.kubernetes.io/component": "manager"},
			"ports": [{"name": "workload", "port": 443, "targetPort": "workload", "protocol": "TCP"}]}`},
		{"class", over, workload, ".spec.loadBalancerClass", `"example.com/x"`},
		{"ranges", over, workload, ".spec.loadBalancerSourceRanges", `["192.0.2.0/24"]`},
		{"policy", over, workload, ".spec.externalTrafficPolicy", `"Local"`},
		{"port", over, workload, ".spec.ports[0].nodePort", `30443`},
		{"type", over, workload, ".spec.type", `"LoadBalancer"`},
		{"type", over, reached, ".spec.type", `"ClusterIP"`},
		{"type", own, reached, ".spec.type", `"NodePort"`},
		{"not the port of the probes", closed, "NetworkPolicy heirloom", ".spec.ingress", `[{"ports": [{"port": "metrics", "protocol": "TCP"}]},
			{"ports": [{"port": "webhook", "protocol": "TCP"}]}, {"ports": [{"port": "workload", "protocol": "TCP"}]}]`},
	}
	for name, over := range map[string]values{workload: over, reached: own} {
		all = append(all, []meaning{
			{"annotations", over, name, ".metadata.annotations.a", `"b"`},
			{"labels", over, name, ".metadata.labels.a", `"b"`},
			{"families", over, name, ".spec.ipFamilies", `["IPv6"]`},
			{"families", over, name, ".spec.ipFamilyPolicy", `"SingleStack"`},
		}...)
	}
	return all
}

func webhookMeanings() []meaning {
	const mutating, validating = "MutatingWebhookConfiguration heirloom", "ValidatingWebhookConfiguration heirloom"
	const excluded = `{"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "azure"]}]}`
	aks := values{"webhooks": values{"annotations": values{"admissions.enforcer/disabled": "true"}, "excludeNamespaces": []any{"kube-system", "azure"}}}
	slow := values{"webhooks": values{"timeoutSeconds": 5}, "managementCluster": "fleet/self"}
	const ofNodes = ".webhooks[?(@.name=='nodes.heirloom.dev')].failurePolicy"
	both := `{"admissions.enforcer/disabled": "true", "cert-manager.io/inject-ca-from": "heirloom-system/heirloom-webhook"}`
	all := []meaning{
		{"AKS", aks, mutating, ".metadata.annotations", both},
		{"AKS", aks, validating, ".metadata.annotations", both},
		{"timeout", slow, mutating, ".webhooks[?(@.name=='machines.heirloom.dev')].timeoutSeconds", `5`},
		{"timeout", slow, mutating, ".webhooks[?(@.name=='controlplanes.heirloom.dev')].timeoutSeconds", `5`},
		{"timeout", slow, mutating, ".webhooks[?(@.name=='siblings.heirloom.dev')].timeoutSeconds", `5`},
		{"a kubelet waits no longer", slow, mutating, ".webhooks[?(@.name=='nodes.heirloom.dev')].timeoutSeconds", `2`},
		{"the plugin's rights are for whom they are bound to", values{"pluginRoles": values{"create": true}}, "ClusterRole heirloom-plugin",
			`.metadata.labels.rbac\.authorization\.k8s\.io/aggregate-to-view`, `null`},
		{"or for everybody with view", values{"pluginRoles": values{"create": true, "aggregateToView": true}}, "ClusterRole heirloom-plugin",
			`.metadata.labels.rbac\.authorization\.k8s\.io/aggregate-to-view`, `"true"`},
		{"no API server calls it", nil, mutating, ofNodes, `null`},
		{"the management cluster calls it", slow, mutating, ofNodes, `"Ignore"`},
		{"workload clusters have a copy", values{"workloadClusters": values{"webhookURL": "https://h"}}, mutating, ofNodes, `"Ignore"`},
		{"Nodes have no namespace", slow, mutating, ".webhooks[?(@.name=='nodes.heirloom.dev')].namespaceSelector", `null`},
		{"one namespace", values{"watchNamespace": "fleet", "webhooks": aks["webhooks"]}, mutating,
			".webhooks[?(@.name=='machines.heirloom.dev')].namespaceSelector", `{"matchLabels": {"kubernetes.io/metadata.name": "fleet"}}`},
	}
	selected := values{"managementCluster": "fleet/self", "webhooks": values{"namespaceSelector": aSelector("a"), "objectSelector": aSelector("b"), "excludeNamespaces": []any{"azure"}}}
	const more = `{"key": "b", "operator": "In", "values": ["x", "y"]}`
	all = append(all, []meaning{
		{"selected", selected, mutating, ".webhooks[?(@.name=='machines.heirloom.dev')].objectSelector",
			`{"matchLabels": {"b": "x"}, "matchExpressions": [{"key": "heirloom.dev/ignore", "operator": "DoesNotExist"}, ` + more + `]}`},
		{"selected", selected, mutating, ".webhooks[?(@.name=='siblings.heirloom.dev')].objectSelector.matchExpressions",
			`[{"key": "heirloom.dev/ignore", "operator": "DoesNotExist"}, {"key": "cluster.x-k8s.io/cluster-name", "operator": "Exists"}, ` + more + `]`},
		{"selected", selected, mutating, ".webhooks[?(@.name=='controlplanes.heirloom.dev')].objectSelector.matchExpressions",
			`[{"key": "heirloom.dev/ignore", "operator": "DoesNotExist"}, {"key": "topology.cluster.x-k8s.io/owned", "operator": "Exists"}, ` + more + `]`},
		{"all Nodes", selected, mutating, ".webhooks[?(@.name=='nodes.heirloom.dev')].objectSelector", `{}`},
		{"no label permits a reserved taint", selected, validating, ".webhooks[?(@.name=='taints.heirloom.dev')].objectSelector", `null`},
		{"selected", selected, validating, ".webhooks[?(@.name=='taints.heirloom.dev')].namespaceSelector", `{"matchLabels": {"a": "x"}, "matchExpressions": [
			{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["azure"]}, {"key": "a", "operator": "In", "values": ["x", "y"]}]}`},
		{"selected, of one namespace", values{"watchNamespace": "fleet", "webhooks": values{"namespaceSelector": values{"matchLabels": values{"a": "x", "kubernetes.io/metadata.name": "other"}}}},
			mutating, ".webhooks[?(@.name=='machines.heirloom.dev')].namespaceSelector", `{"matchLabels": {"kubernetes.io/metadata.name": "fleet", "a": "x"}}`},
	}...)
	for of, names := range map[string][]string{
		mutating:   {"controlplanes", "machinedeployments", "machinepools", "machinesets", "machines", "siblings"},
		validating: {"taints", "topology.taints"},
	} {
		for _, name := range names {
			all = append(all, meaning{"excluded", aks, of, ".webhooks[?(@.name=='" + name + ".heirloom.dev')].namespaceSelector", excluded})
		}
	}
	return all
}

func monitorMeanings() []meaning {
	const monitor, rule = "PodMonitor heirloom", "PrometheusRule heirloom"
	serviceMonitor := values{"serviceMonitor": values{"enabled": true, "authorization": values{"credentials": values{"name": "t", "key": "token"}}}}
	tokened, ownCA := values{"monitoring": serviceMonitor}, values{"monitoring": serviceMonitor, "certificates": values{"mode": "self"}}
	off := values{"enabled": false}
	nothingAvailable := values{"monitoring": values{"prometheusRule": values{"enabled": true, "alerts": values{
		"HeirloomAbsent": off, "HeirloomNotLeading": off, "HeirloomCertificateExpiring": off, "HeirloomMemoryNearLimit": off,
	}}}}
	insecure := values{"insecureDiagnostics": true, "monitoring": values{"podMonitor": values{"enabled": true}}}
	return []meaning{
		{"everything", podMonitored(), monitor, ".spec", `{
			"selector": {"matchLabels": {"app.kubernetes.io/name": "heirloom", "app.kubernetes.io/instance": "heirloom", "app.kubernetes.io/component": "manager"}},
			"podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "scheme": "https", "interval": "30s", "scrapeTimeout": "10s",
				"authorization": {"credentials": {"name": "prometheus-token", "key": "token"}}, "tlsConfig": {"insecureSkipVerify": true},
				"relabelings": [{"action": "labeldrop", "regex": "pod"}], "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}]}]}`},
		{"a token in a Secret", tokened, "ServiceMonitor heirloom", ".spec.endpoints[0].bearerTokenFile", `null`},
		{"a token in a Secret", tokened, "ServiceMonitor heirloom", ".spec.endpoints[0].authorization", `{"credentials": {"name": "t", "key": "token"}}`},
		{"verified by cert-manager's CA", tokened, "ServiceMonitor heirloom", ".spec.endpoints[0].tlsConfig",
			`{"ca": {"secret": {"name": "heirloom-webhook-cert", "key": "ca.crt"}}, "serverName": "heirloom-webhook.heirloom-system.svc"}`},
		{"not verified", ownCA, "ServiceMonitor heirloom", ".spec.endpoints[0].tlsConfig", `{"insecureSkipVerify": true}`},
		{"an alert of another severity", everything(), rule, `.spec.groups[*].rules[?(@.alert=='HeirloomDrift')].labels.severity`, `"info"`},
		{"runbooks", everything(), rule, `.spec.groups[*].rules[?(@.alert=='HeirloomDrift')].annotations.runbook_url`, `"https://runbooks.example.com/heirloom/HeirloomDrift.md"`},
		{"an alert that is off", everything(), rule, `.spec.groups[*].rules[?(@.alert=='HeirloomAbsent')].alert`, `null`},
		{"no alert of a group", nothingAvailable, rule, ".spec.groups[0].name", `"heirloom.admission"`},
		{"alerts as they are", values{"monitoring": values{"prometheusRule": values{"enabled": true}}}, rule,
			`.spec.groups[*].rules[?(@.alert=='HeirloomAbsent')].labels.severity`, `"critical"`},
		{"labels", podMonitored(), monitor, ".metadata.labels.release", `"prometheus"`},
		{"annotations", podMonitored(), monitor, ".metadata.annotations.a", `"b"`},
		{"without authentication", insecure, monitor, ".spec.podMetricsEndpoints", `[{"port": "metrics", "path": "/metrics", "scheme": "http"}]`},
		{"annotations", everything(), "ServiceMonitor heirloom", ".metadata.annotations.a", `"b"`},
		{"annotations", everything(), "PrometheusRule heirloom", ".metadata.annotations.a", `"b"`},
		{"a token", everything(), "ServiceMonitor heirloom", ".spec.endpoints[0].bearerTokenFile", `null`},
		{"a token", values{"monitoring": values{"serviceMonitor": values{"enabled": true}}}, "ServiceMonitor heirloom",
			".spec.endpoints[0].bearerTokenFile", `"/var/run/secrets/kubernetes.io/serviceaccount/token"`},
	}
}

// A PodMonitor selects Pods; only a ServiceMonitor needs the Service for metrics.
func TestAPodMonitorNeedsNoService(t *testing.T) {
	objects, err := render(t, podMonitored())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		NewWithT(t).Expect(object.GetKind() + " " + object.GetName()).NotTo(BeElementOf("Service heirloom-metrics", "ServiceMonitor heirloom"))
	}
}

// Every object of the chart has the common labels and annotations.
func TestEveryObjectHasTheCommonMetadata(t *testing.T) {
	for _, over := range []values{everything(), {"certificates": values{"mode": "cert-manager"}, "createNamespace": true}} {
		over["commonLabels"], over["commonAnnotations"], over["extraObjects"] = values{"common": "l"}, values{"common": "a"}, []any{}
		for _, object := range renderWithHook(t, over) {
			name := object.GetKind() + " " + object.GetName()
			NewWithT(t).Expect(object.GetLabels()).To(HaveKeyWithValue("common", "l"), name)
			NewWithT(t).Expect(object.GetAnnotations()).To(HaveKeyWithValue("common", "a"), name)
		}
	}
}
