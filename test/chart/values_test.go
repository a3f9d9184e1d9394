// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// Helm refuses invalid values, with a message that names the value.
func TestWrongValuesAreRefused(t *testing.T) {
	provided := func(over values) values {
		all := values{"mode": "provided"}
		for key, value := range over {
			all[key] = value
		}
		return values{"certificates": all}
	}
	for _, tc := range []struct {
		wrong values
		says  string
	}{
		// A row for each kind of rule in the schema.
		{values{"replicas": 3}, "'replicas' not allowed"},
		{values{"deployment": values{"replicas": 3}}, "at '/deployment': additional properties 'replicas' not allowed"},
		{values{"requiredKeys": []any{values{"label": "a b", "kind": "Cluster"}}}, "/requiredKeys/0"},
		{values{"requiredKeys": []any{values{"label": "a", "annotation": "b", "kind": "Cluster"}}}, "/requiredKeys/0"},
		{values{"perClusterSyncAllowed": []any{"a,b"}}, "/perClusterSyncAllowed/0"},
		{values{"additionalProviderGroups": []any{"infra.example.com", ""}}, "/additionalProviderGroups/1"},
		{values{"additionalProviderGroups": []any{"apps"}}, "/additionalProviderGroups/0"},
		{values{"additionalProviderGroups": []any{"rbac.authorization.k8s.io"}}, "/additionalProviderGroups/0"},
		{values{"additionalProviderGroups": []any{"ipam.cluster.x-k8s.io", "cluster.x-k8s.io"}}, "/additionalProviderGroups/1"},
		{values{"additionalProviderGroups": []any{"myk8s.io", "kueue.x-k8s.io"}}, "/additionalProviderGroups/1"},
		{values{"workloadClusters": values{"secretsIn": []any{""}}}, "/workloadClusters/secretsIn/0"},
		{values{"uninstall": values{"hook": values{"enabled": "yes"}}}, "/uninstall/hook/enabled"},
		{values{"webhooks": values{"objectSelector": values{"matchExpressions": []any{values{"key": "a", "operator": "Is"}}}}}, "/webhooks/objectSelector/matchExpressions/0/operator"},
		{values{"webhooks": values{"namespaceSelector": values{"team": "a"}}}, "at '/webhooks/namespaceSelector': additional properties 'team' not allowed"},
		{values{"dnsPolicy": "Never"}, "/dnsPolicy"},
		{values{"hostAliases": []any{values{"ip": "192.0.2.1"}}}, "/hostAliases/0"},
		{values{"certificates": values{"certManager": values{"duration": "90d"}}}, "/certificates/certManager/duration"},
		{values{"monitoring": values{"prometheusRule": values{"alerts": values{"HeirloomDrift": values{"for": "1h"}}}}}, "/monitoring/prometheusRule/alerts/HeirloomDrift"},
		{values{"watchNamespace": "a/b"}, "/watchNamespace"},
		{values{"syncPeriod": "0s"}, "/syncPeriod"},
		{values{"noExecuteRate": -1}, "/noExecuteRate"},
		{values{"noExecute": "budget"}, "/noExecute"},
		{values{"additionalSyncMachineLabels": []any{"a,b"}}, "/additionalSyncMachineLabels/0"},
		{values{"workloadClusters": values{"webhookURL": "http://heirloom.example.com"}}, "/workloadClusters/webhookURL"},
		{values{"tls": values{"minVersion": "1.2"}}, "/tls/minVersion"},
		{values{"drainSeconds": 120}, "/drainSeconds"},
		{values{"tolerations": []any{values{"effect": "Never"}}}, "/tolerations/0/effect"},
		{values{"image": values{"digest": "sha256:0"}}, "/image/digest"},
		{values{"webhooks": values{"timeoutSeconds": 11}}, "/webhooks/timeoutSeconds"},
		{values{"webhooks": values{"failurePolicy": "Fail"}}, "at '/webhooks': additional properties 'failurePolicy' not allowed"},
		{values{"managementCluster": "a/b..c"}, "/managementCluster"},
		{values{"additionalProviderGroups": []any{"a..b"}}, "/additionalProviderGroups/0"},
		{values{"tls": values{"cipherSuites": []any{"TLS_ROT_13"}}}, "/tls/cipherSuites/0"},

		{values{"namespace": "heirloom-system"}, "namespace: set watchNamespace to confine the watch; the release's namespace is helm's --namespace"},
		{values{"namespace": ""}, "namespace: set watchNamespace"},

		// Valid alone, but not together.
		{values{"image": values{"repository": "registry.example.com/a/heirloom"}}, "set image.registry=registry.example.com and image.repository=a/heirloom"},
		{values{"additionalSyncMachineLabels": []any{"a("}}, `additionalSyncMachineLabels: "a(" is not a valid Go regular expression`},
		{values{"managementCluster": "a/self", "watchNamespace": "b"}, "managementCluster=a/self is not in the only namespace"},
		{values{"leaderElection": values{"renewDeadlineSeconds": 15}}, "leaderElection.renewDeadlineSeconds"},
		{values{"leaderElection": values{"enabled": false}}, "replicaCount=2 needs leaderElection.enabled"},
		{values{"uninstall": values{"release": true}, "leaderElection": values{"enabled": false}, "replicaCount": 1}, "uninstall.release needs leaderElection.enabled"},
		{values{"logging": values{"format": "json", "vmodule": "a=1"}}, "logging.vmodule needs logging.format=text"},
		{values{"serviceAccount": values{"create": false}}, "serviceAccount.create=false needs serviceAccount.name"},
		{values{"ports": values{"webhook": 8443}}, "ports.metrics and ports.webhook are both 8443"},
		{values{"strategy": values{"rollingUpdate": values{"maxSurge": 0}}}, "no Pod could ever be replaced"},
		{values{"podDisruptionBudget": values{"minAvailable": "51%"}}, "podDisruptionBudget.minAvailable=51% must be less than replicaCount=2"},
		{values{"podDisruptionBudget": values{"minAvailable": 2}}, "podDisruptionBudget.minAvailable=2 must be less than replicaCount=2"},
		{values{"podDisruptionBudget": values{"maxUnavailable": 0}}, "podDisruptionBudget.maxUnavailable must not be 0"},
		{values{"hostNetwork": true, "networkPolicy": values{"enabled": true}}, "networkPolicy.enabled has no effect with hostNetwork"},
		{values{"deployment": values{"enabled": false}}, "deployment.enabled=false needs webhooks.url"},
		{values{"workloadClusters": values{"service": values{"nodePort": 30443}}}, "workloadClusters.service.nodePort needs"},
		{values{"workloadClusters": values{"service": values{"externalTrafficPolicy": "Local"}}}, "workloadClusters.service.externalTrafficPolicy needs"},
		{values{"workloadClusters": values{"service": values{"loadBalancerClass": "x"}}}, "workloadClusters.service.loadBalancerClass needs"},
		{values{"watchNamespace": "fleet", "webhooks": values{"excludeNamespaces": []any{"fleet"}}}, "webhooks.excludeNamespaces has fleet"},
		{values{"monitoring": values{"prometheusRule": values{"enabled": true, "alerts": values{"Drift": values{"enabled": false}}}}}, "has Drift, which is no alert of this chart"},
		{values{"certificates": values{"mode": "self", "certManager": values{"duration": "90h"}}}, "duration is for certificates.mode=cert-manager, not for self"},
		{values{"monitoring": values{"podMonitor": values{"enabled": true}}}, "monitoring.podMonitor.enabled needs monitoring.podMonitor.authorization"},
		{values{"monitoring": values{"podMonitor": values{"enabled": true}, "serviceMonitor": values{"enabled": true}}}, "every Pod would be scraped twice"},
		{values{"workloadClusters": values{"admission": "webhook"}}, "workloadClusters.admission=webhook needs workloadClusters.webhookURL"},
		{values{"workloadClusters": values{"enabled": false, "webhookURL": "https://heirloom.example.com"}}, "workloadClusters.enabled=false leaves"},
		{values{"workloadClusters": values{"enabled": false, "admission": "policy"}}, "workloadClusters.enabled=false leaves"},
		{values{"workloadClusters": values{"enabled": false, "secretsIn": []any{"fleet"}}}, "workloadClusters.secretsIn needs"},
		{values{"watchNamespace": "fleet", "workloadClusters": values{"secretsIn": []any{"fleet"}}}, "workloadClusters.secretsIn needs"},
		{values{"createNamespace": true, "uninstall": values{"release": true}}, "uninstall.release needs the hook"},
		{values{"webhooks": values{"url": "https://127.0.0.1:9443"}}, "webhooks.url needs certificates.mode=self or provided"},
		{values{"webhooks": values{"clientCA": values{"names": []any{"api-server"}}}}, "webhooks.clientCA.names needs webhooks.clientCA.configMapName"},
		{values{"webhooks": values{"clientCA": values{"configMapName": "clients", "key": "../ca"}}}, "/webhooks/clientCA/key"},
		{values{"certificates": values{"mode": "self"}, "workloadClusters": values{"webhookURL": "https://192.0.2.1:9444"}},
			"certificates.mode=self makes certificates for host names only, not for the address 192.0.2.1 of a URL"},
		{values{"certificates": values{"mode": "self"}, "workloadClusters": values{"webhookURL": "https://[2001:db8::1]:9444"}}, "the address 2001:db8::1"},
		{values{"certificates": values{"mode": "self"}, "workloadClusters": values{"webhookURL": "https://Heirloom.example.com"}}, "not for the host Heirloom.example.com"},
		{values{"certificates": values{"mode": "self", "provided": values{"secretName": "x"}}}, "certificates.provided is for certificates.mode=provided, not for self"},
		{values{"certificates": values{"provided": values{"caBundle": "eA=="}}}, "certificates.provided is for certificates.mode=provided, not for cert-manager"},
		{values{"certificates": values{"mode": "self", "certManager": values{"issuerRef": values{"name": "x"}}}}, "issuerRef is for certificates.mode=cert-manager, not for self"},
		{provided(nil), "certificates.provided.caBundle"},
		{provided(values{"provided": values{"caBundle": "bm8gY2VydGlmaWNhdGU="}}), "certificates.provided.caBundle must be CA certificates"},
		{provided(values{"provided": values{"caBundle": aCertificate}}), "certificates.provided.secretName"},
	} {
		t.Run(tc.says, func(t *testing.T) {
			_, err := render(t, tc.wrong)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}

// aCertificate passes the chart's check for a certificate: "-----BEGIN CERTIFICATE-----", as base64.
const aCertificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"

// Helm accepts exactly the URLs that the program accepts.
func TestURLsAreThoseOfTheProgram(t *testing.T) {
	for _, url := range []string{
		"https://h", "https://h/", "https://h.example.com:8443/a/b", "https://[2001:db8::1]:9444", "https://h/.well-known/x", "https://h/...", "https://h/a@b",
		"http://h", "h", "https://", "https:///a", "https://u@h", "https://u:p@h", "https://h?", "https://h?a=b", "https://h#", "https://h/a#b",
		"https://h//a", "https://h/a//", "https://h/./a", "https://h/a/..", "https://h/%41", "https://h:port", "https://h /",
	} {
		t.Run(url, func(t *testing.T) {
			_, err := render(t, values{"workloadClusters": values{"webhookURL": url}})
			_, refused := webhook.BaseURL(url)
			NewWithT(t).Expect(err == nil).To(Equal(refused == nil), "helm: %v; the program: %v", err, refused)
		})
	}
}

// The schema has the cipher suites of the program.
func TestCipherSuitesAreThoseOfTheProgram(t *testing.T) {
	Expect := NewWithT(t).Expect
	var root struct {
		Properties struct {
			TLS struct {
				Properties struct {
					CipherSuites struct{ Items struct{ Enum []string } }
				}
			}
		}
	}
	Expect(json.Unmarshal([]byte(document(t, "deploy", "chart", "heirloom", "values.schema.json")), &root)).To(Succeed())
	Expect(root.Properties.TLS.Properties.CipherSuites.Items.Enum).To(ConsistOf(cliflag.TLSCipherPossibleValues()))
}
