// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	noSchedule = corev1.TaintEffectNoSchedule
	guard      = "node.cluster.x-k8s.io/uninitialized"
)

// ofBoth returns a Node with entries that Heirloom's annotations list, that Cluster API's list, that both list, and that no annotation
// lists.
func ofBoth() *corev1.Node {
	n := node("n",
		map[string]string{"team": "ml", "empty": "", "node-role.kubernetes.io/worker": "", "shared": "1", "mine": "yes"},
		map[string]string{
			"note": "x", "own": "y",
			"heirloom.dev/labels-from-machine": "empty,shared,team", "cluster.x-k8s.io/labels-from-machine": "node-role.kubernetes.io/worker,shared",
			"heirloom.dev/annotations-from-machine": "note", "cluster.x-k8s.io/annotations-from-machine": "",
			"heirloom.dev/taints-from-machine": "annotated=yes:NoSchedule", "cluster.x-k8s.io/taints-from-machine": "gpu=true:NoSchedule",
			"heirloom.dev/uninitialized": "added",
		},
		corev1.Taint{Key: "annotated", Value: "yes", Effect: noSchedule}, corev1.Taint{Key: "gpu", Value: "true", Effect: noSchedule},
		corev1.Taint{Key: "mine", Effect: noSchedule}, corev1.Taint{Key: guard, Effect: noSchedule},
	)
	recorded := inherit.Record{Labels: []string{"node-role.kubernetes.io/worker"}, Taints: n.Spec.Taints[:2]}.Recorded(inherit.OfNode(n))
	n.Labels, n.Annotations = recorded.Labels, recorded.Annotations
	return n
}

const (
	releasedNode = `
metadata:
  labels: {node-role.kubernetes.io/worker: "", shared: "1", mine: "yes"}
  annotations:
    own: y
    cluster.x-k8s.io/labels-from-machine: node-role.kubernetes.io/worker,shared
    cluster.x-k8s.io/annotations-from-machine: ""
    cluster.x-k8s.io/taints-from-machine: gpu:NoSchedule
spec: {taints: [{key: gpu, value: "true", effect: NoSchedule}, {key: mine, effect: NoSchedule}]}
`
	keptNode = `
metadata:
  labels: {team: ml, empty: "", node-role.kubernetes.io/worker: "", shared: "1", mine: "yes"}
  annotations:
    note: x
    own: y
    cluster.x-k8s.io/labels-from-machine: node-role.kubernetes.io/worker,shared
    cluster.x-k8s.io/annotations-from-machine: ""
    cluster.x-k8s.io/taints-from-machine: gpu:NoSchedule
spec: {taints: [{key: annotated, value: "yes", effect: NoSchedule}, {key: gpu, value: "true", effect: NoSchedule}, {key: mine, effect: NoSchedule}]}
`
)

// A release removes the entries that Heirloom's annotations list, and these annotations. Entries in Cluster API's annotations stay, with
// annotations that Cluster API can read. The guard taint is always removed, because no other controller removes it.
func TestNodes(t *testing.T) {
	ours := owns("v1", "heirloom", `{f:spec: {f:taints: {}}}`)
	kubelet := owns("v1", "kubelet", `{f:metadata: {f:labels: {f:mine: {}}}}`)
	for _, tc := range []struct {
		name    string
		options Options
		want    string
	}{
		{name: "what we list goes, and our managed fields", want: releasedNode},
		{name: "values are kept where that is wanted", options: Options{Mode: Mode{KeepValues: true}}, want: keptNode},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			n := ofBoth()
			n.ManagedFields = []metav1.ManagedFieldsEntry{ours, kubelet}
			management := holds(served, n)
			r := releasing(management, tc.options)
			Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
			text, managers := management.stored(t, "v1", "Node", "n")
			Expect(text).To(MatchYAML(tc.want))
			Expect(managers).To(Equal([]string{"kubelet"}))
			Expect(management.written()).To(HaveLen(2))
			Expect(r.out.String()).To(Equal("node/n released\n"))

			management.writes = nil
			again := releasing(management, Options{})
			Expect(again.Run(t.Context())).To(Succeed())
			Expect(management.written()).To(BeEmpty(), "a second run changes nothing")
		})
	}
}

func TestADryRunNamesWhatANodeWouldLose(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, ofBoth())
	r := releasing(management, dryRun)
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
	Expect(r.out.String()).To(Equal(`node/n released (dry run)
  .metadata.labels.empty
  .metadata.labels.heirloom.node-restriction.kubernetes.io/record
  .metadata.labels.team
  .metadata.annotations.cluster.x-k8s.io/taints-from-machine
  .metadata.annotations.heirloom.dev/annotations-from-machine
  .metadata.annotations.heirloom.dev/labels-from-machine
  .metadata.annotations.heirloom.dev/record-from-machine
  .metadata.annotations.heirloom.dev/taints-from-machine
  .metadata.annotations.heirloom.dev/uninitialized
  .metadata.annotations.note
  .spec.taints[effect="NoSchedule",key="annotated"]
  .spec.taints[effect="NoSchedule",key="node.cluster.x-k8s.io/uninitialized"]
`))
}

// The metadata of most Nodes shows that they have no entries of Heirloom, so they are not read in full.
func TestNodesWithoutAnythingOfOurs(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, node("n", map[string]string{"a": "1"}, map[string]string{"cluster.x-k8s.io/labels-from-machine": "a"}))
	management.fail["get Node"] = forbidden
	r := releasing(management, Options{})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
}

// Taints are one list that is replaced as a whole: a taint that is added in between must not be lost.
func TestANodeThatChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, ofBoth())
		management.before["patch Node"] = func() {
			n := &corev1.Node{}
			Expect(management.others.Get(t.Context(), client.ObjectKey{Name: "n"}, n)).To(Succeed())
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "new", Effect: noSchedule})
			Expect(management.others.Update(t.Context(), n, client.FieldOwner("user"))).To(Succeed())
		}
		Expect(releasing(management, Options{}).Run(t.Context())).To(Succeed())
		n := &corev1.Node{}
		Expect(management.Get(t.Context(), client.ObjectKey{Name: "n"}, n)).To(Succeed())
		var keys []string
		for _, taint := range n.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		Expect(keys).To(Equal([]string{"gpu", "mine", "new"}))
	})
}

func TestNodesThatCannotBeReleased(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, management *apiServer)
		problem string
	}{
		{"one that may not be read", func(_ *testing.T, s *apiServer) { s.fail["get Node"] = forbidden }, "Node /n: any \"it\" is forbidden"},
		{"one that may not be written", func(_ *testing.T, s *apiServer) { s.fail["patch Node"] = forbidden }, "Node /n: any \"it\" is forbidden"},
		{"one to which a webhook brings back what has gone", func(t *testing.T, s *apiServer) {
			s.after["patch Node"] = func(o client.Object) {
				NewWithT(t).Expect(s.others.Update(t.Context(), ofBoth())).To(Succeed())
				NewWithT(t).Expect(s.others.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
			}
		}, "Node /n: released entries have come back in the same write"},
		{"one that goes meanwhile is none", func(t *testing.T, s *apiServer) {
			s.before["get Node"] = func() { NewWithT(t).Expect(s.others.Delete(t.Context(), ofBoth())).To(Succeed()) }
		}, ""},
		{"nor one that goes later", func(t *testing.T, s *apiServer) {
			s.before["patch Node"] = func() { NewWithT(t).Expect(s.others.Delete(t.Context(), ofBoth())).To(Succeed()) }
		}, ""},
		{"nor one from which somebody else takes it meanwhile", func(t *testing.T, s *apiServer) {
			s.before["get Node"] = func() {
				NewWithT(t).Expect(s.others.Update(t.Context(), node("n", nil, nil))).To(Succeed())
			}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, ofBoth())
				tc.prepare(t, management)
				r := releasing(management, Options{})
				err := r.Run(t.Context())
				Expect(r.out.String()).To(BeEmpty())
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
					return
				}
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			})
		})
	}
}
