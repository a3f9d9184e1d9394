// SPDX-License-Identifier: Apache-2.0

package cleanup

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

// ofBoth returns a Node with entries that Heirloom's annotations list, and with entries of others.
func ofBoth() *corev1.Node {
	n := node("n", map[string]string{"team": "ml", "mine": "yes"}, map[string]string{
		"note": "x", "heirloom.dev/labels-from-machine": "team", "heirloom.dev/annotations-from-machine": "note",
		"heirloom.dev/taints-from-machine": "annotated=yes:NoSchedule", "heirloom.dev/uninitialized": "added",
	}, corev1.Taint{Key: "annotated", Value: "yes", Effect: noSchedule}, corev1.Taint{Key: "mine", Effect: noSchedule}, corev1.Taint{Key: guard, Effect: noSchedule})
	recorded := inherit.Record{Taints: n.Spec.Taints[:1]}.Recorded(inherit.OfNode(n))
	n.Labels, n.Annotations = recorded.Labels, recorded.Annotations
	return n
}

const (
	cleanNode = `{metadata: {labels: {mine: "yes"}}, spec: {taints: [{key: mine, effect: NoSchedule}]}}`
	keptNode  = `
metadata: {labels: {team: ml, mine: "yes"}, annotations: {note: x}}
spec: {taints: [{key: annotated, value: "yes", effect: NoSchedule}, {key: mine, effect: NoSchedule}]}`
)

// Package inherit says what a Node gives up. Heirloom's managed fields go with it, and a second run changes nothing.
func TestNodes(t *testing.T) {
	ours := owns("v1", "heirloom", `{f:spec: {f:taints: {}}}`)
	kubelet := owns("v1", "kubelet", `{f:metadata: {f:labels: {f:mine: {}}}}`)
	for want, options := range map[string]Options{cleanNode: {}, keptNode: {Mode: Mode{KeepValues: true}}} {
		Expect := NewWithT(t).Expect
		n := ofBoth()
		n.ManagedFields = []metav1.ManagedFieldsEntry{ours, kubelet}
		management := holds(served, n)
		r := cleaning(management, options)
		Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
		text, managers := management.stored(t, "v1", "Node", "n")
		Expect(text).To(MatchYAML(want))
		Expect(managers).To(Equal([]string{"kubelet"}))
		Expect(management.written()).To(HaveLen(2))
		Expect(r.out.String()).To(Equal("node/n cleaned up\n"))

		management.writes = nil
		Expect(cleaning(management, Options{}).Run(t.Context())).To(Succeed())
		Expect(management.written()).To(BeEmpty(), "a second run changes nothing")
	}
}

func TestDryRunOfANode(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, ofBoth())
	r := cleaning(management, dryRun)
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
	Expect(r.out.String()).To(Equal(`node/n cleaned up (dry run)
  .metadata.labels.heirloom.node-restriction.kubernetes.io/record
  .metadata.labels.team
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

// A dry run by the server sends every write, in a request that stores nothing, also while the webhooks of a running Heirloom answer.
func TestServerSideDryRun(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, append(configurations(), ofBoth(), teamed(t, core, "Machine", "m"))...)
	r := cleaning(management, Options{Stop: true, Mode: Mode{DryRun: true, ServerSide: true}})
	r.Management = client.NewDryRunClient(management)
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(ContainElements(deletesMutating, deletesValidating, "patch Machine m", "patch Node n"))
	Expect(r.out.String()).To(And(ContainSubstring(saysDeletedDry), ContainSubstring(saysCleanedUpDry), ContainSubstring("node/n cleaned up (dry run)")))
	n := &corev1.Node{}
	Expect(management.others.Get(t.Context(), client.ObjectKey{Name: "n"}, n)).To(Succeed())
	Expect(n.Labels).To(HaveKey("team"))
}

// The metadata of most Nodes shows that they have no entries of Heirloom, so they are not read in full.
func TestNodesWithoutAnythingOfOurs(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, node("n", map[string]string{"a": "1"}, map[string]string{"cluster.x-k8s.io/labels-from-machine": "a"}))
	management.fail["get Node"] = forbidden
	r := cleaning(management, Options{})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
}

// Taints are one list that is replaced as a whole: a taint that is added in between must not be lost.
func TestCleanupKeepsTaintsAddedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, ofBoth())
		management.before["patch Node"] = func() {
			n := &corev1.Node{}
			Expect(management.others.Get(t.Context(), client.ObjectKey{Name: "n"}, n)).To(Succeed())
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "new", Effect: noSchedule})
			Expect(management.others.Update(t.Context(), n, client.FieldOwner("user"))).To(Succeed())
		}
		Expect(cleaning(management, Options{}).Run(t.Context())).To(Succeed())
		n := &corev1.Node{}
		Expect(management.Get(t.Context(), client.ObjectKey{Name: "n"}, n)).To(Succeed())
		var keys []string
		for _, taint := range n.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		Expect(keys).To(Equal([]string{"mine", "new"}))
	})
}
