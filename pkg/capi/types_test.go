// SPDX-License-Identifier: Apache-2.0

package capi_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

func TestVersion(t *testing.T) {
	for _, tc := range []struct {
		name    string
		served  []string
		want    string
		problem string
	}{
		{name: "the best version is chosen", served: []string{"v1beta1", "v1beta2"}, want: "v1beta2"},
		{name: "an older Cluster API has the older one", served: []string{"v1beta1"}, want: "v1beta1"},
		{name: "versions that we do not understand do not count", served: []string{"v1alpha4", "v1", "v1beta1"}, want: "v1beta1"},
		{name: "without Cluster API the operator is told what to do", problem: "install Cluster API v1.8 or later first"},
		{name: "with too old a Cluster API, too", served: []string{"v1alpha4"}, problem: "install Cluster API v1.8 or later first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, version := range tc.served {
				mapper.Add(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: "Machine"}, meta.RESTScopeNamespace)
			}
			version, err := capi.Version(mapper)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(version).To(Equal(schema.GroupVersion{Group: "cluster.x-k8s.io", Version: tc.want}))
		})
	}
}

// A discovery that fails is not an API server without Cluster API.
func TestVersionThatCannotBeFound(t *testing.T) {
	_, err := capi.Version(unreachable{})
	NewWithT(t).Expect(err).To(MatchError("finding the served version of Machine.cluster.x-k8s.io: connection refused"))
}

type unreachable struct{ meta.RESTMapper }

func (unreachable) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}

func TestSchemeOfEachVersion(t *testing.T) {
	for _, version := range capi.ServedVersions() {
		s := runtime.NewScheme()
		capi.AddToScheme(s, schema.GroupVersion{Group: "cluster.x-k8s.io", Version: version})
		for _, kind := range []string{"Cluster", "MachineDeployment", "MachineSet", "Machine"} {
			for _, name := range []string{kind, kind + "List"} {
				_, err := s.New(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: name})
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			}
		}
	}
}

// One type reads both versions.
func TestMachineOfEachVersion(t *testing.T) {
	for version, nodeRef := range map[string]string{
		"v1beta1": "{apiVersion: v1, kind: Node, name: node-1, uid: u}",
		"v1beta2": "{name: node-1}",
	} {
		t.Run(version, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := &capi.Machine{}
			Expect(yaml.Unmarshal([]byte("{apiVersion: cluster.x-k8s.io/"+version+", kind: Machine, metadata: {name: m, labels: {cluster.x-k8s.io/control-plane: ''}}, "+
				"spec: {clusterName: c, providerID: 'aws://1', version: v1.36.3, bootstrap: {dataSecretName: s}}, "+
				"status: {nodeRef: "+nodeRef+", addresses: [{type: InternalIP, address: 10.0.0.1}], phase: Running}}"), m)).To(Succeed())
			Expect(m.Status.NodeRef.Name).To(Equal("node-1"))
			Expect(m.Status.Addresses).To(Equal([]clusterv1.MachineAddress{{Type: "InternalIP", Address: "10.0.0.1"}}))
			Expect(m.Spec.ProviderID).To(Equal("aws://1"))
			Expect(m.IsControlPlane()).To(BeTrue())
			Expect((&capi.Machine{}).IsControlPlane()).To(BeFalse())
		})
	}
}

// A control plane of either contract is read, no matter who provides it.
func TestControlPlaneOfEachContract(t *testing.T) {
	const taints = "taints: [{key: gpu, effect: NoSchedule, propagation: Always}]"
	for contract, template := range map[string]string{
		"v1beta1": "{metadata: {labels: {a: '1'}}, nodeDrainTimeout: 1m, " + taints + "}",
		"v1beta2": "{metadata: {labels: {a: '1'}}, spec: {deletion: {nodeDrainTimeoutSeconds: 60}, " + taints + "}}",
	} {
		t.Run(contract, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			object := map[string]any{}
			Expect(yaml.Unmarshal([]byte("{kind: AcmeControlPlane, metadata: {name: cp}, spec: {machineTemplate: "+template+", version: v1.36.3}}"), &object)).To(Succeed())
			cp := &capi.ControlPlane{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, cp)).To(Succeed())
			machines := cp.Spec.MachineTemplate
			Expect(machines.Labels).To(Equal(map[string]string{"a": "1"}))
			Expect(append(machines.Taints, machines.Spec.Taints...)).To(HaveExactElements(HaveField("Key", "gpu")))
			Expect(machines.NodeDrainTimeout != nil).To(Equal(contract == "v1beta1"))
			Expect(machines.Spec.Deletion.NodeDrainTimeoutSeconds != nil).To(Equal(contract == "v1beta2"))
		})
	}
}
