// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// The pre-delete hook has only the arguments and the rights that the values require.
func TestTheHook(t *testing.T) {
	const only, stops, workloads = "--only-webhook-configurations", "--stop", "--only-workload-clusters"
	for _, tc := range []struct {
		name     string
		over     values
		has, not []string
		// secrets are the roles that grant access to Secrets of Clusters.
		secrets []string
	}{
		{"as it is", nil, []string{stops, workloads, "--leader-elect-namespace=" + releaseNamespace}, []string{only, "--keep-values=false"}, []string{"ClusterRole heirloom-uninstall"}},
		{"one namespace", values{"watchNamespace": fleetNamespace}, []string{stops, workloads, "--namespace=" + fleetNamespace}, []string{only}, []string{"Role heirloom-uninstall-fleet"}},
		{"a release", values{"uninstall": values{"release": true}}, []string{stops, "--keep-values=false"}, []string{only, workloads}, []string{"ClusterRole heirloom-uninstall"}},
		{"Secrets of a namespace", values{"workloadClusters": values{"secretsIn": []any{fleetNamespace}}}, []string{stops, workloads}, []string{only}, []string{"Role heirloom-uninstall-kubeconfigs"}},
		{"workload clusters are left alone", values{"workloadClusters": values{"enabled": false}}, []string{only}, []string{stops, workloads}, nil},
		{"manifests without helm", values{"createNamespace": true}, nil, []string{only, stops, workloads}, nil},
		{"manifests with helm", values{"createNamespace": true, "uninstall": values{"hook": values{"enabled": true}}}, []string{stops, workloads}, nil, []string{"ClusterRole heirloom-uninstall"}},
		{"no hook", values{"uninstall": values{"hook": values{"enabled": false}}}, nil, []string{only, stops, workloads}, nil},
		{"workload clusters are left", values{"uninstall": values{"workloadClusters": false}}, []string{only}, []string{stops, workloads}, nil},
		{
			"nobody knows when the loop has stopped", values{"leaderElection": values{"enabled": false}, "replicaCount": 1},
			[]string{only}, []string{stops, workloads}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects, err := controlplane.RenderChart(t.Context(), chartDir(t), controlplane.ChartOptions{Namespace: releaseNamespace, Values: tc.over, Hooks: true})
			Expect(err).NotTo(HaveOccurred())
			var args, secrets []string
			for _, object := range objects {
				if object.GetAnnotations()["helm.sh/hook"] != "pre-delete" {
					continue
				}
				if containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers"); len(containers) > 0 {
					args, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
				}
				rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
				for _, rule := range rules {
					rule := rule.(map[string]any)
					if _, named := rule["resourceNames"]; !named && rule["resources"].([]any)[0] == "secrets" {
						secrets = append(secrets, object.GetKind()+" "+object.GetName())
					}
				}
			}
			Expect(args).To(ContainElements(tc.has))
			for _, arg := range tc.not {
				Expect(args).NotTo(ContainElement(arg))
			}
			Expect(secrets).To(Equal(tc.secrets))
		})
	}
}

// The rights of the hook, by namespace: with watchNamespace, it changes objects only there. Each role is bound to the hook's
// ServiceAccount only, and is created and deleted with the hook.
func TestTheRightsOfTheHook(t *testing.T) {
	const configurations = "admissionregistration.k8s.io mutatingwebhookconfigurations,validatingwebhookconfigurations [heirloom]: get,delete"
	const scale, leases = "apps deployments/scale [heirloom]: update", "coordination.k8s.io leases []: get"
	const nodes = " nodes []: get,list,patch"
	withdraw := []string{"cluster.x-k8s.io clusters []: list", " secrets []: get"}
	report := append(slices.Clone(withdraw), "events.k8s.io events []: create")
	objects := []string{
		"cluster.x-k8s.io machinedeployments,machinepools,machinesets,machines []: get,list,patch",
		"controlplane.cluster.x-k8s.io,infrastructure.cluster.x-k8s.io,bootstrap.cluster.x-k8s.io,infra.example.com * []: get,list,patch",
	}
	release, groups := values{"release": true}, []any{"infra.example.com"}
	for _, tc := range []struct {
		name   string
		over   values
		rights map[string][]string
	}{
		{"all namespaces", nil, map[string][]string{"": slices.Concat([]string{configurations}, report), releaseNamespace: {scale, leases}}},
		{"one namespace", values{"watchNamespace": fleetNamespace}, map[string][]string{
			"": {configurations}, releaseNamespace: {scale, leases}, fleetNamespace: report,
		}},
		{"a release in all namespaces", values{"uninstall": release, "additionalProviderGroups": groups}, map[string][]string{
			"": slices.Concat([]string{configurations}, objects, []string{nodes}, withdraw), releaseNamespace: {scale, leases},
		}},
		{"a release in one namespace", values{"uninstall": release, "additionalProviderGroups": groups, "watchNamespace": fleetNamespace}, map[string][]string{
			"": {configurations, nodes}, releaseNamespace: {scale, leases}, fleetNamespace: slices.Concat(objects, withdraw),
		}},
		{"one namespace, whose workload clusters are left", values{"uninstall": values{"workloadClusters": false}, "watchNamespace": fleetNamespace}, map[string][]string{
			"": {configurations},
		}},
		{"Secrets of two namespaces", values{"workloadClusters": values{"secretsIn": []any{"red", "blue"}}}, map[string][]string{
			"":    {configurations, "cluster.x-k8s.io clusters []: list", "events.k8s.io events []: create"},
			"red": {" secrets []: get"}, "blue": {" secrets []: get"}, releaseNamespace: {scale, leases},
		}},
		{"a release that leaves workload clusters alone", values{"uninstall": release, "workloadClusters": values{"enabled": false}, "additionalProviderGroups": groups}, map[string][]string{
			"": slices.Concat([]string{configurations}, objects, []string{nodes}), releaseNamespace: {scale, leases},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			granted := map[string][]string{}
			roles, bound := []string{}, []string{}
			for _, object := range renderWithHook(t, tc.over) {
				if object.GetAnnotations()["helm.sh/hook"] != "pre-delete" || object.GroupVersionKind().Group != rbacv1.GroupName {
					continue
				}
				Expect(object.GetAnnotations()).To(And(HaveKeyWithValue("helm.sh/hook-weight", "-10"),
					HaveKeyWithValue("helm.sh/hook-delete-policy", "before-hook-creation,hook-succeeded")), object.GetName())
				name := object.GetNamespace() + "/" + object.GetName()
				switch object.GetKind() {
				case "ClusterRole", "Role":
					// Both kinds have the same rules.
					role := &rbacv1.ClusterRole{}
					Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)).To(Succeed())
					roles = append(roles, object.GetKind()+" "+name)
					for _, rule := range role.Rules {
						granted[object.GetNamespace()] = append(granted[object.GetNamespace()], said(rule))
					}
				case "ClusterRoleBinding", "RoleBinding":
					binding := &rbacv1.ClusterRoleBinding{}
					Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding)).To(Succeed())
					Expect(binding.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "heirloom-uninstall", Namespace: releaseNamespace}}))
					Expect(binding.RoleRef.Name).To(Equal(object.GetName()))
					bound = append(bound, binding.RoleRef.Kind+" "+name)
				}
			}
			Expect(granted).To(Equal(tc.rights))
			Expect(bound).To(ConsistOf(roles))
		})
	}
}

// The Secrets that the program may read in addition to its own, by the namespace of the roles.
func TestTheRightToReadSecrets(t *testing.T) {
	for name, tc := range map[string]struct {
		over   values
		within []string
	}{
		"as it is":                         {nil, []string{""}},
		"of a namespace":                   {values{"watchNamespace": fleetNamespace}, []string{fleetNamespace}},
		"of two namespaces":                {values{"workloadClusters": values{"secretsIn": []any{"red", "blue"}}}, []string{"red", "blue"}},
		"of none":                          {values{"workloadClusters": values{"enabled": false}}, nil},
		"of none of the watched namespace": {values{"workloadClusters": values{"enabled": false}, "watchNamespace": fleetNamespace}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects, err := render(t, tc.over)
			Expect(err).NotTo(HaveOccurred())
			var within []string
			for _, object := range objects {
				rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
				for _, rule := range rules {
					if resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources"); slices.Contains(resources, "secrets") {
						within = append(within, object.GetNamespace())
					}
				}
			}
			Expect(within).To(Equal(tc.within))
		})
	}
}

// The program may list and evict the Pods of the management cluster only if they must leave its Nodes within their budgets.
func TestTheRightToEvict(t *testing.T) {
	self := fleetNamespace + "/self"
	for name, tc := range map[string]struct {
		over   values
		rights []string
	}{
		"as it is":                     {nil, nil},
		"of a management cluster":      {values{"managementCluster": self}, nil},
		"of workload clusters":         {values{"noExecute": "budgets"}, nil},
		"of a management cluster, too": {values{"noExecute": "budgets", "managementCluster": self}, []string{" pods []: list", " pods/eviction []: create"}},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects, err := render(t, tc.over)
			Expect(err).NotTo(HaveOccurred())
			var rights []string
			for _, object := range objects {
				role := &rbacv1.ClusterRole{}
				if object.GetKind() == "ClusterRole" {
					Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)).To(Succeed())
				}
				for _, rule := range role.Rules {
					if slices.ContainsFunc(rule.Resources, func(resource string) bool { return strings.HasPrefix(resource, "pods") }) {
						rights = append(rights, said(rule))
					}
				}
			}
			Expect(rights).To(Equal(tc.rights))
		})
	}
}

// said returns a rule as text: groups, resources, names and verbs.
func said(rule rbacv1.PolicyRule) string {
	return fmt.Sprintf("%s %s [%s]: %s", strings.Join(rule.APIGroups, ","), strings.Join(rule.Resources, ","),
		strings.Join(rule.ResourceNames, ","), strings.Join(rule.Verbs, ","))
}
