// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestReleases(t *testing.T) {
	Expect := NewWithT(t).Expect
	releases, err := controlplane.Releases(t.Context())
	Expect(err).NotTo(HaveOccurred())
	// The second one's name changes with go.mod.
	Expect(releases).To(HaveExactElements(HaveField("Name", "v1.13.6"), HaveField("Name", HavePrefix("v1."))))
	Expect(controlplane.CAPICRDPaths()).To(Equal(releases[1].CRDPaths))
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			crds := map[string]string{}
			for _, dir := range release.CRDPaths {
				Expect(dir).To(And(BeADirectory(), ContainSubstring(release.Name)))
				files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
				Expect(err).NotTo(HaveOccurred())
				for _, file := range files {
					crds[filepath.Base(file)] = file
				}
			}
			for _, resource := range []string{
				"cluster.x-k8s.io_clusters", "cluster.x-k8s.io_machines", "bootstrap.cluster.x-k8s.io_kubeadmconfigs",
				"controlplane.cluster.x-k8s.io_kubeadmcontrolplanes",
			} {
				Expect(crds).To(HaveKey(resource + ".yaml"))
				Expect(storedVersion(t, crds[resource+".yaml"])).To(Equal("v1beta2"), resource)
			}
		})
	}
}

func storedVersion(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	NewWithT(t).Expect(yaml.Unmarshal(content, &crd)).To(Succeed())
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

// testProviders holds the CRDs of providers that do not exist: Cluster API would find the version of each, and each
// takes what it is for.
func testProviders(t *testing.T, cp *controlplane.ControlPlane) {
	Expect := NewWithT(t).Expect
	c := newClient(t, cp)
	var crds apiextensionsv1.CustomResourceDefinitionList
	Expect(c.List(t.Context(), &crds)).To(Succeed())
	labels := map[string]map[string]string{}
	for _, crd := range crds.Items {
		labels[crd.Spec.Names.Kind] = crd.Labels
	}
	for _, provider := range providers() {
		var versions []string
		for key, version := range labels[provider.GetKind()] {
			if strings.HasPrefix(key, "cluster.x-k8s.io/") {
				versions = append(versions, version)
			}
		}
		served := provider.GroupVersionKind().Version
		Expect(versions).To(And(Not(BeEmpty()), HaveEach(served)), provider.GetKind())

		provider.SetNamespace("default")
		provider.SetName("one")
		Expect(c.Create(t.Context(), provider, client.FieldValidation("Strict"))).To(Succeed(), provider.GetKind())
	}
}

// providers returns an object of each kind, with every field that matters.
func providers() []*unstructured.Unstructured {
	metadata := map[string]any{"labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"}}
	taints := []any{map[string]any{"key": "gpu", "value": "true", "effect": "NoSchedule", "propagation": "Always"}}
	gates := []any{map[string]any{"conditionType": "Healthy", "polarity": "Positive"}}
	machine := map[string]any{"providerID": "fake://one", "anything": int64(1)}
	object := func(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	}
	controlPlane := func(version, kind string, template map[string]any) *unstructured.Unstructured {
		return object("controlplane.cluster.x-k8s.io/"+version, kind,
			map[string]any{"replicas": int64(1), "version": "v1.36.3", "machineTemplate": template})
	}
	oldRef := map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "FakeMachineTemplate", "name": "one"}
	return []*unstructured.Unstructured{
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeMachine", machine),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeMachineTemplate",
			map[string]any{"template": map[string]any{"metadata": metadata, "spec": machine}}),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeCluster",
			map[string]any{"controlPlaneEndpoint": map[string]any{"host": "one.example", "port": int64(6443)}}),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeClusterTemplate", map[string]any{"template": map[string]any{"metadata": metadata,
			"spec": map[string]any{"controlPlaneEndpoint": map[string]any{"host": "one.example", "port": int64(6443)}}}}),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeMachinePool",
			map[string]any{"machines": true, "providerIDList": []any{"fake://one"}}),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "FakeMachinePoolTemplate",
			map[string]any{"template": map[string]any{"metadata": metadata, "spec": map[string]any{"machines": true}}}),
		object("infrastructure.example.com/v1", "ExampleMachine", machine),
		controlPlane("v1beta2", "ModernControlPlane", map[string]any{"metadata": metadata, "spec": map[string]any{
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachineTemplate", "name": "one"},
			"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(1), "nodeVolumeDetachTimeoutSeconds": int64(2),
				"nodeDeletionTimeoutSeconds": int64(3)},
			"readinessGates": gates, "taints": taints,
		}}),
		controlPlane("v1beta1", "OlderControlPlane", map[string]any{
			"metadata": metadata, "infrastructureRef": oldRef, "readinessGates": gates, "taints": taints,
			"nodeDrainTimeout": "1m30s", "nodeVolumeDetachTimeout": "2m0s", "nodeDeletionTimeout": "10s",
		}),
		controlPlane("v1beta1", "PlainControlPlane", map[string]any{"metadata": metadata, "infrastructureRef": oldRef}),
		object("controlplane.cluster.x-k8s.io/v1beta1", "ManagedControlPlane", map[string]any{"version": "v1.36.3"}),
	}
}
