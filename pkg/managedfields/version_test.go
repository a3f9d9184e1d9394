// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// upgraded returns a control plane that a user created and Heirloom applied in v1beta1, as an API server returns it in v1beta2.
func upgraded(t *testing.T, applied string) *unstructured.Unstructured {
	t.Helper()
	Expect := NewWithT(t).Expect
	managers, err := fieldManagersOnce()
	Expect(err).NotTo(HaveOccurred())
	empty := &unstructured.Unstructured{}
	empty.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	empty.SetKind(anyControlPlane)
	in := func(text string) *unstructured.Unstructured {
		o := empty.DeepCopy()
		Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
		return o
	}
	created, err := managers.updated(empty, in(`
metadata: {name: cp}
spec: {machineTemplate: {metadata: {labels: {user: "1"}}, spec: {clusterName: c, taints: [{key: user, effect: NoSchedule, propagation: Always}]}}}`), "user")
	Expect(err).NotTo(HaveOccurred())
	o, err := managers.applied(created, in(applied), managedfields.Manager, true)
	Expect(err).NotTo(HaveOccurred())
	o, err = converted(o, version)
	Expect(err).NotTo(HaveOccurred())
	o.SetCreationTimestamp(*created.GetManagedFields()[0].Time)
	return o
}

// looped runs the loop until no change is left, and returns its writes.
func looped(t *testing.T, o *unstructured.Unstructured, decided inherit.Decision) (result *unstructured.Unstructured, writes []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	managers, err := fieldManagersOnce()
	Expect(err).NotTo(HaveOccurred())
	for len(writes) < 4 {
		plan, err := managedfields.New(o, contentOf(o), decided, nil)
		Expect(err).NotTo(HaveOccurred())
		if !plan.Needed() {
			return o, writes
		}
		kind := "apply"
		if plan.Adopts() || plan.GivesUp() {
			kind = "patch"
		}
		o, err = (&world{managers: managers, kind: anyControlPlane, live: o, desired: decided, clock: now}).write(plan)
		Expect(err).NotTo(HaveOccurred())
		writes = append(writes, kind)
	}
	t.Fatal("it comes to no end")
	return nil, nil
}

// A provider may serve a newer version than the version of Heirloom's entry. The loop moves the entry with a single apply.
func TestTheLoopMovesOurEntryToTheVersionOfTheObject(t *testing.T) {
	const (
		mine   = "gpu:NoSchedule"
		labels = "{spec: {machineTemplate: {metadata: {labels: {a: '1'}}}}}"
		all    = `
spec:
  machineTemplate:
    metadata: {labels: {a: "1"}}
    nodeDrainTimeout: 60s
    spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}`
	)
	desired := func(labels, taints string, drain *int32) inherit.Object {
		below := content{labels: labels, taints: taints}.content()
		below.Fields.Seconds[inherit.NodeDrainTimeout] = drain
		return inherit.Object{Template: &below}
	}
	for _, tc := range []struct {
		name, applied string
		decided       inherit.Decision
		writes        string
		labels, taint string
		drain         any
		// moved: our entry is in the new version.
		moved bool
	}{
		{name: "all is as before", applied: all, decided: fromOwner(desired("a=1", mine, new(int32(60)))), writes: "apply", labels: "a user", taint: "gpu user", drain: int64(60), moved: true},
		{name: "a taint goes", applied: all, decided: fromOwner(desired("a=1", "", new(int32(60)))), writes: "apply", labels: "a user", taint: "user", drain: int64(60), moved: true},
		{name: "a label goes first, with a patch", applied: all, decided: fromOwner(desired("", mine, nil)), writes: "patch apply", labels: "user", taint: "gpu user", moved: true},
		{name: "all goes", applied: all, decided: fromOwner(desired("", "", nil)), writes: "patch apply", labels: "user", taint: "user"},
		{name: "an orphan keeps all", applied: all, decided: orphan(desired("", "", nil)), labels: "a user", taint: "gpu user", drain: int64(60)},
		{name: "labels alone need no move", applied: labels, decided: fromOwner(desired("a=1", "", nil)), labels: "a user", taint: "user"},
		{name: "what the create brought is adopted first", applied: "{spec: {machineTemplate: {nodeDrainTimeout: 60s}}}", decided: fromOwner(desired("user=1", "", nil)), writes: "patch apply", labels: "user", taint: "user", moved: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			o, writes := looped(t, upgraded(t, tc.applied), tc.decided)
			Expect(strings.Join(writes, " ")).To(Equal(tc.writes))
			has := contentOf(o).Template
			var labels, taints []string
			for label := range has.Labels {
				labels = append(labels, label)
			}
			for _, taint := range has.Taints {
				taints = append(taints, taint.Key)
			}
			slices.Sort(labels)
			slices.Sort(taints)
			Expect(strings.Join(labels, " ")).To(Equal(tc.labels))
			Expect(strings.Join(taints, " ")).To(Equal(tc.taint))
			drain, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "machineTemplate", "spec", "deletion", "nodeDrainTimeoutSeconds")
			if tc.drain == nil {
				Expect(drain).To(BeNil())
			} else {
				Expect(drain).To(BeEquivalentTo(tc.drain))
			}
			at := slices.IndexFunc(o.GetManagedFields(), managedfields.IsOurs)
			Expect(at >= 0 && o.GetManagedFields()[at].APIVersion == version).To(Equal(tc.moved))
			if tc.moved { // from now on, undeclared entries go as usual
				o, writes = looped(t, o, fromOwner(desired("", "", nil)))
				Expect(writes).To(Equal([]string{"patch"}))
				Expect(slices.ContainsFunc(o.GetManagedFields(), managedfields.IsOurs)).To(BeFalse())
			}
		})
	}
}
