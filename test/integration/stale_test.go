// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// Cluster API takes from a child what its owner no longer declares. Heirloom, which brings what is inherited, must not put that back
// because it has not heard of the owner's change yet, neither in that write, nor in the next, nor in the loop. What an owner
// still declares comes back all the same.
func TestWhatAnOwnerNoLongerDeclaresDoesNotComeBack(t *testing.T) {
	for _, withWebhooks := range []bool{true, false} {
		t.Run(fmt.Sprintf("webhooks=%t", withWebhooks), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, stage.Options{Lagging: true, WithoutWebhooks: !withWebhooks})
			f := s.settle("stale", declared())
			node := stage.Node("stale")
			s.create(node)
			const pool, worker = "node.cluster.x-k8s.io/pool", "node-role.kubernetes.io/worker"
			for _, tc := range []struct {
				child client.Object
				meta  *metav1.ObjectMeta
				held  []string
				// key is no longer declared, kept still is.
				key, kept string
				owners    []client.Object
			}{
				{f.ms, &f.ms.ObjectMeta, []string{"machinedeployments"}, "team", worker, []client.Object{f.md}},
				{f.m, &f.m.ObjectMeta, []string{"machinedeployments", "machinesets"}, "node-restriction.kubernetes.io/z", worker, []client.Object{f.md, f.ms}},
				{node, &node.ObjectMeta, []string{"machinedeployments", "machinesets", "machines"}, pool, worker, []client.Object{f.md, f.ms, f.m}},
			} {
				s.lookedAt(tc.child, tc.key, tc.kept)
				release := s.Lag.Hold(tc.held...)
				t.Cleanup(release)
				for _, owner := range tc.owners {
					s.takeAway(owner, tc.key)
				}
				s.staysWithout(tc.child, tc.key, func() { s.takeAway(tc.child, tc.key) })
				s.staysWithout(tc.child, tc.key, func() {
					s.get(tc.child)
					s.update(tc.child, func() { metav1.SetMetaDataAnnotation(tc.meta, "another", fmt.Sprint(time.Now())) })
				})

				s.takeAway(tc.child, tc.kept)
				s.eventually(tc.child, func(g Gomega) { g.Expect(tc.child.GetLabels()).To(HaveKey(tc.kept)) })
				release()
			}
			s.staysWithout(node, pool, func() {})
		})
	}
}

// An apply names all that an object inherits, also what the loop believes it to have. It must not bring back what has gone
// since the loop's cache heard of the object.
func TestAnApplyOutOfAStaleCacheBringsNothingBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{Lagging: true, WithoutWebhooks: true})
	f := s.settle("late", declared())
	const zone = "node-restriction.kubernetes.io/z"
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKey(zone)) })
	releaseMachines := s.appliesUnheard(f)
	releaseOwners := s.Lag.Hold("machinedeployments", "machinesets")
	t.Cleanup(releaseOwners)
	for _, object := range []client.Object{f.md, f.ms, f.m} {
		s.takeAway(object, zone)
	}
	s.get(f.cluster)
	s.staysWithout(f.m, zone, func() {
		s.looksAgain(f.m, func() { // it finds that the Machine lacks a label
			for _, paused := range []bool{true, false} {
				s.update(f.cluster, func() { f.cluster.Spec.Paused = new(paused) })
			}
		})
		releaseMachines()
	})
	releaseOwners()
	s.staysWithout(f.m, zone, func() {})
	s.Expect(f.m.Labels).To(HaveKey("later"))
}

// appliesUnheard holds back events of Machines, and has the loop apply a label of which its cache then does not hear until release.
func (s *scene) appliesUnheard(f family) (release func()) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		log, value := tailOf(s.HeirloomLog()), fmt.Sprint(time.Now().UnixNano())
		release = s.Lag.Hold("machines")
		s.t.Cleanup(release)
		s.get(f.ms)
		s.update(f.ms, func() { f.ms.Spec.Template.Labels["later"] = value })
		var conflict bool
		s.eventually(f.m, func(g Gomega) {
			content, err := log.read()
			g.Expect(err).NotTo(HaveOccurred())
			conflict = f.m.Labels["later"] != value && strings.Contains(string(content), "the object has been modified")
			g.Expect(conflict || f.m.Labels["later"] == value).To(BeTrue())
		})
		if conflict {
			release()
		}
		g.Expect(conflict).To(BeFalse(), "the cache had not heard of an earlier write either")
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return release
}

// takeAway removes a label from an object and from what it declares for others.
func (s *scene) takeAway(object client.Object, key string) {
	s.t.Helper()
	s.get(object)
	s.update(object, func() {
		delete(object.GetLabels(), key)
		switch object := object.(type) {
		case *clusterv1.MachineDeployment:
			delete(object.Spec.Template.Labels, key)
		case *clusterv1.MachineSet:
			delete(object.Spec.Template.Labels, key)
		}
	})
}

// staysWithout expects that something happens and the loop looks at an object, and that neither brings that label, not even for a
// moment. An API server that does not answer within a second leaves the decision to the cache; then it is tried again.
func (s *scene) staysWithout(object client.Object, key string, happens func()) {
	s.t.Helper()
	since := tailOf(s.HeirloomLog())
	s.Eventually(func(g Gomega) {
		happens()
		back := false
		look := func() {
			s.get(object)
			_, has := object.GetLabels()[key]
			back = back || has
		}
		for begun := time.Now(); !back && time.Since(begun) < 2*time.Second; {
			s.looksAgain(object, func() { look(); s.touch(object) })
			look()
		}
		if back {
			log, err := since.read()
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(string(log)).To(ContainSubstring("so the cache does"), "%s is back, although the API server had been asked", key)
			since = tailOf(s.HeirloomLog()) // what brings it back now has to be logged as well
			s.takeAway(object, key)
		}
		g.Expect(back).To(BeFalse(), "%s is back", key)
	}).WithTimeout(4 * patience).WithPolling(polling).Should(Succeed())
}

// lookedAt waits until a child has these labels and the loop has seen that it lacks nothing.
func (s *scene) lookedAt(child client.Object, labels ...string) {
	s.t.Helper()
	s.eventually(child, func(g Gomega) {
		for _, label := range labels {
			g.Expect(child.GetLabels()).To(HaveKey(label))
		}
	})
	s.looksAgain(child, func() { s.touch(child) })
}

// touch makes a change that does not matter. Of a Node, caches keep only what might be inherited.
func (s *scene) touch(object client.Object) {
	s.t.Helper()
	key := touched
	if _, ok := object.(*corev1.Node); ok {
		key = "node.cluster.x-k8s.io/touched"
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, key, time.Now().UnixNano()))
	s.Expect(s.Client.Patch(s.ctx, object, patch)).To(Succeed())
}

// looksAgain waits until the loop has looked at an object of that kind, on a stage where nothing else of that kind changes. A look
// that was under way may have seen what was before, so the second one after that counts; each is brought about by a change.
func (s *scene) looksAgain(object client.Object, change func()) {
	s.t.Helper()
	gvk, err := s.Client.GroupVersionKindFor(object)
	s.Expect(err).NotTo(HaveOccurred())
	looks := func() float64 {
		return s.sum(fmt.Sprintf(`controller_runtime_reconcile_total{controller=%q,`, strings.ToLower(gvk.Kind)))
	}
	before := looks()
	s.Eventually(func(g Gomega) {
		change()
		g.Expect(looks()).To(BeNumerically(">=", before+2))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}
