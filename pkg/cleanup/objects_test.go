// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A cleanup removes entries that no other manager owns, from every kind that inherits and from no other kind. Entries of other managers
// stay.
func TestEveryKindIsCleanedUp(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served,
		teamed(t, controlPlane, "ControlPlane", "cp"), teamed(t, controlPlane, "ControlPlaneTemplate", "cpt"),
		teamed(t, core, "Cluster", "c"), teamed(t, core, "MachineDeployment", "md"), teamed(t, core, "MachinePool", "mp"),
		teamed(t, core, "MachineSet", "ms"), teamed(t, core, "Machine", "m"), teamed(t, core, "MachineHealthCheck", "mhc"),
		teamed(t, infra, "InfraMachine", "im"), teamed(t, infra, "InfraMachineTemplate", "imt"), teamed(t, bootstrap, "Bootstrap", "b"),
	)
	r := cleaning(management, Options{})
	Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
	Expect(management.written()).To(ConsistOf(
		"patch ControlPlane cp", "patch MachineDeployment md", "patch MachinePool mp", "patch MachineSet ms", "patch Machine m",
		"patch InfraMachine im", "patch Bootstrap b",
	))
	Expect(management.writes[0]).To(HavePrefix("patch ControlPlane"), "owners come before their objects")
	Expect(management.writes[5:]).To(Equal([]string{"patch InfraMachine im", "patch Bootstrap b"}), "external objects come last")
	text, managers := management.stored(t, core, "Machine", "m")
	Expect(text).To(MatchYAML(`{metadata: {labels: {mine: "yes"}}}`))
	Expect(managers).To(Equal([]string{"user"}))
}

// Managed fields show which entries are Heirloom's, at any place in an object.
func TestCleanedUpEntries(t *testing.T) {
	const content = `{metadata: {labels: {team: ml, mine: "yes"}, annotations: {note: x}}, spec: {clusterName: c, deletion: {nodeDrainTimeoutSeconds: 60}}}`
	ours := owns(core, "heirloom", `{f:metadata: {f:labels: {f:team: {}}, f:annotations: {f:note: {}}}, f:spec: {f:deletion: {f:nodeDrainTimeoutSeconds: {}}}}`)
	user := owns(core, "user", `{f:metadata: {f:labels: {f:mine: {}}}, f:spec: {f:clusterName: {}}}`)
	paths := "  .metadata.annotations.note\n  .metadata.labels.team\n  .spec.deletion.nodeDrainTimeoutSeconds\n"
	for _, tc := range []struct {
		name     string
		options  Options
		fields   []metav1.ManagedFieldsEntry
		want     string
		managers []string
		out      string
	}{
		{
			name: "labels, annotations and fields go", fields: []metav1.ManagedFieldsEntry{ours, user}, managers: []string{"user"},
			want: `{metadata: {labels: {mine: "yes"}}, spec: {clusterName: c}}`, out: "machine.cluster.x-k8s.io/m cleaned up in namespace ns\n",
		},
		{
			name: "values are kept where that is wanted", options: Options{Mode: Mode{KeepValues: true}}, fields: []metav1.ManagedFieldsEntry{ours, user},
			want: content, managers: []string{"user"}, out: "machine.cluster.x-k8s.io/m cleaned up in namespace ns\n",
		},
		{
			name: "a dry run says what would go", options: dryRun, fields: []metav1.ManagedFieldsEntry{ours, user},
			want: content, managers: []string{"heirloom", "user"}, out: "machine.cluster.x-k8s.io/m cleaned up in namespace ns (dry run)\n" + paths,
		},
		{name: "where nothing is ours nothing is written", fields: []metav1.ManagedFieldsEntry{user}, want: content, managers: []string{"user"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, object(t, core, "Machine", "m", content, tc.fields...))
			r := cleaning(management, tc.options)
			Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
			text, managers := management.stored(t, core, "Machine", "m")
			Expect(text).To(MatchYAML(tc.want))
			Expect(managers).To(Equal(tc.managers))
			Expect(r.out.String()).To(Equal(tc.out))
			written := len(management.writes) > 0
			Expect(written).To(Equal(tc.out != "" && !tc.options.DryRun))

			again := cleaning(management, Options{})
			if tc.options.DryRun {
				return
			}
			management.writes = nil
			Expect(again.Run(t.Context())).To(Succeed())
			Expect(management.written()).To(BeEmpty(), "a second run changes nothing")
			Expect(again.out.String()).To(BeEmpty())
		})
	}
}

// The loop cleans up single objects: it writes with its own client, and reads from the API server.
func TestOneOfThem(t *testing.T) {
	Expect := NewWithT(t).Expect
	writes := holds(served, teamed(t, core, "Machine", "m"), teamed(t, core, "MachineSet", "ms"), ofBoth())
	writes.fail["get Machine"], writes.fail["get Node"] = forbidden, forbidden
	machine, m := schema.FromAPIVersionAndKind(core, "Machine"), types.NamespacedName{Namespace: "ns", Name: "m"}
	type given struct {
		changed bool
		removed []string
	}
	of := func(changed bool, removed []string, err error) given {
		Expect(err).NotTo(HaveOccurred())
		return given{changed, removed}
	}
	for _, want := range []struct {
		mode          Mode
		machine, node bool
	}{{Mode{DryRun: true}, true, true}, {Mode{}, true, true}, {Mode{}, false, false}} {
		one := of(Object(t.Context(), writes, writes.others, machine, m, want.mode))
		node := of(Node(t.Context(), writes, writes.others, "n", want.mode))
		Expect([]bool{one.changed, node.changed}).To(Equal([]bool{want.machine, want.node}))
		if want.machine {
			Expect(one.removed).To(Equal([]string{".metadata.labels.team"}))
			Expect(node.removed).To(ContainElement(`.spec.taints[effect="NoSchedule",key="annotated"]`))
		}
	}
	Expect(writes.written()).To(Equal([]string{"patch Machine m", "patch Node n", "patch Node n"}))

	gone := of(Object(t.Context(), writes, writes.others, machine, types.NamespacedName{Namespace: "ns", Name: "gone"}, Mode{}))
	Expect(gone.changed).To(BeFalse())
	Expect(of(Node(t.Context(), writes, writes.others, "gone", Mode{})).changed).To(BeFalse())
	writes.fail["patch MachineSet"] = conflict
	_, _, err := Object(t.Context(), writes, writes.others, schema.FromAPIVersionAndKind(core, "MachineSet"), types.NamespacedName{Namespace: "ns", Name: "ms"}, Mode{})
	Expect(err).To(MatchError(conflict), "the caller retries")
}

// A list holds only few objects in memory at a time, because others choose the size of these objects.
func TestListsAreReadInSmallPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		pages := 0
		server := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				Expect((&client.ListOptions{}).ApplyOptions(options).Limit).To(BeNumerically("==", 100))
				nodes := list.(*corev1.NodeList)
				nodes.Items = make([]corev1.Node, 100)
				if pages++; pages < 10 {
					nodes.Continue = "more"
				}
				return nil
			},
		})
		seen := 0
		Expect(eachOf(t.Context(), server, &corev1.NodeList{}, []string{""}, func(*corev1.Node) {
			if seen++; seen == 1 {
				synctest.Wait()
				Expect(pages).To(Equal(2), "this page and the next page")
			}
		})).To(Succeed())
		Expect(seen).To(Equal(1000))
	})
}

// A provider may serve a newer version than the version in which Heirloom wrote an object. The managed fields match only the older version.
// When the older version is no longer served, a cleanup still removes labels and annotations.
func TestRecordsOfOtherVersions(t *testing.T) {
	const (
		older   = "controlplane.cluster.x-k8s.io/v1beta1"
		inNewer = `{metadata: {labels: {team: ml}}, spec: {machineTemplate: {spec: {deletion: {nodeDrainTimeoutSeconds: 60}}, other: x}}}`
		inOlder = `{metadata: {labels: {team: ml}}, spec: {machineTemplate: {nodeDrainTimeout: 60s, other: x}}}`
	)
	ours := owns(older, "heirloom", `{f:metadata: {f:labels: {f:team: {}}}, f:spec: {f:machineTemplate: {f:nodeDrainTimeout: {}}}}`)
	gvk, key := schema.FromAPIVersionAndKind(controlPlane, "ControlPlane"), types.NamespacedName{Namespace: "ns", Name: "cp"}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "controlplanes"}, "cp")
	noMatch := &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{"v1beta1"}}
	label, field := ".metadata.labels.team", ".spec.machineTemplate.nodeDrainTimeout"
	for _, tc := range []struct {
		name    string
		older   error
		version string
		want    []string
		problem error
	}{
		{name: "it is served", version: older, want: []string{label, field}},
		{name: "the API server does not know it", older: noMatch, version: controlPlane, want: []string{label}},
		{name: "the API server has just stopped to serve it", older: notFound, version: controlPlane, want: []string{label}},
		{name: "its conversion does not answer", older: forbidden, problem: forbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			writes := holds(served)
			converting := interceptor.NewClient(writes.others.(client.WithWatch), interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
					content, apiVersion := inNewer, into.GetObjectKind().GroupVersionKind().GroupVersion().String()
					if apiVersion == older {
						if tc.older != nil {
							return tc.older
						}
						content = inOlder
					}
					object(t, apiVersion, "ControlPlane", "cp", content, ours).DeepCopyInto(into.(*unstructured.Unstructured))
					return nil
				},
				Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
					Expect(object.GetObjectKind().GroupVersionKind().GroupVersion().String()).To(Equal(tc.version))
					return nil
				},
			})
			changed, removed, err := Object(t.Context(), converting, converting, gvk, key, Mode{})
			if tc.problem != nil {
				Expect(err).To(MatchError(tc.problem))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(changed).To(BeTrue())
			Expect(removed).To(Equal(tc.want))
		})
	}
}
