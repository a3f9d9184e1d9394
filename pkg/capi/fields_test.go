// SPDX-License-Identifier: Apache-2.0

package capi_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // deprecated and still served
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// declaring is the JSON of a MachineDeployment that declares one field, with 90 seconds.
func declaring(t *testing.T, f capi.Field, version string) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	at := capi.WorkersLayout(version).Template
	object := map[string]any{"apiVersion": "cluster.x-k8s.io/" + version, "kind": "MachineDeployment"}
	Expect(unstructured.SetNestedField(object, at.Value(f, 90), at.Fields[f]...)).To(Succeed())
	raw, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// Each row says of its field what Cluster API's own types and their conversion say.
func TestFieldsInClusterAPI(t *testing.T) {
	for f := range capi.ReadinessGates {
		older := own[clusterv1beta1.MachineDeployment](t, declaring(t, f, "v1beta1"))
		newer := own[clusterv1.MachineDeployment](t, declaring(t, f, "v1beta2"))
		converted, back := &clusterv1.MachineDeployment{}, &clusterv1beta1.MachineDeployment{}
		NewWithT(t).Expect(clusterv1beta1.Convert_v1beta1_MachineDeployment_To_v1beta2_MachineDeployment(older, converted, nil)).To(Succeed())
		NewWithT(t).Expect(clusterv1beta1.Convert_v1beta2_MachineDeployment_To_v1beta1_MachineDeployment(newer, back, nil)).To(Succeed())
		objects := map[string]any{"v1beta1": older, "v1beta2": newer, "v1beta1 converted": converted, "v1beta2 converted": back}
		if f == capi.MinReadySeconds { // which Cluster API's module of types does not convert
			objects = map[string]any{"v1beta1": older, "v1beta2": newer}
		}
		for name, object := range objects {
			t.Run(describeField(f)+" of "+name, func(t *testing.T) { expectDeclared(t, f, read[capi.MachineDeployment](t, object)) })
		}
	}
}

// Each row reads its field, and no other, from where the layouts have it.
func TestFieldsAreRead(t *testing.T) {
	for f := range capi.ReadinessGates {
		for _, version := range []string{"v1beta1", "v1beta2"} {
			t.Run(describeField(f)+" of "+version, func(t *testing.T) {
				expectDeclared(t, f, read[capi.MachineDeployment](t, json.RawMessage(declaring(t, f, version))))
			})
		}
	}
}

func expectDeclared(t *testing.T, f capi.Field, md *capi.MachineDeployment) {
	t.Helper()
	spec, want := md.Spec.Template.Spec, capi.Seconds{}
	want[f] = new(int32(90))
	NewWithT(t).Expect(capi.SecondsOf(spec.MachineFields, spec.WorkerFields, md.Spec.WorkerFields)).To(Equal(want))
}

// describeField names a field by where v1beta1 has it.
func describeField(f capi.Field) string {
	return strings.Join(capi.WorkersLayout("v1beta1").Template.Fields[f], ".")
}

// The trimmed types have no field that the table does not know: it would be read and silently dropped.
func TestFieldsAreComplete(t *testing.T) {
	known := []string{"spec.taints"}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		for _, path := range capi.MachinePaths(version, nil, []string{"spec"}, []string{"spec"}).Fields {
			known = append(known, strings.Join(path, "."))
		}
	}
	slices.Sort(known)
	var have []string
	for _, fields := range []any{capi.MachineFields{}, capi.WorkerFields{}} {
		have = append(have, leaves(reflect.TypeOf(fields), "spec")...)
	}
	slices.Sort(have)
	NewWithT(t).Expect(have).To(Equal(slices.Compact(known)))
}

// leaves lists the paths of a struct's fields that are not structs themselves.
func leaves(object reflect.Type, at string) []string {
	if object.Kind() != reflect.Struct {
		return []string{at}
	}
	var all []string
	for i := range object.NumField() {
		name, _, _ := strings.Cut(object.Field(i).Tag.Get("json"), ",")
		all = append(all, leaves(object.Field(i).Type, at+"."+name)...)
	}
	return all
}

func TestFieldOf(t *testing.T) {
	for name, want := range map[string]capi.Field{
		"nodeDrainTimeout": capi.NodeDrainTimeout, "nodeDrainTimeoutSeconds": capi.NodeDrainTimeout,
		"nodeVolumeDetachTimeout": capi.NodeVolumeDetachTimeout, "nodeVolumeDetachTimeoutSeconds": capi.NodeVolumeDetachTimeout,
		"nodeDeletionTimeout": capi.NodeDeletionTimeout, "nodeDeletionTimeoutSeconds": capi.NodeDeletionTimeout,
		"minReadySeconds": capi.MinReadySeconds, "readinessGates": capi.ReadinessGates,
		"example.com/Ready": capi.ReadinessGates, "": capi.ReadinessGates,
	} {
		NewWithT(t).Expect(capi.FieldOf(name)).To(Equal(want), name)
	}
}
