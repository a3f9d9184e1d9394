// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

func ensure(w *workload, machines ...*clusterv1.Machine) error {
	_, err := w.ensure(machines...)
	return err
}

func remove(w *workload) error {
	_, err := policy.Remove(w.t.Context(), w)
	return err
}

func nothing() []string {
	return []string{
		"delete MutatingAdmissionPolicyBinding nodes.heirloom.dev", "delete MutatingAdmissionPolicy nodes.heirloom.dev",
		"delete ConfigMap nodes.heirloom.dev", "delete Namespace heirloom-nodes",
	}
}

// Where one step is not allowed, those that rest on it are not taken: there is never a policy without its parameters, nor
// a binding without its policy. The next time it goes on from there.
func TestASetUpThatFailsHalfway(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "nodes.heirloom.dev", errors.New("not yours"))
	const reading = "listing what Heirloom has made in the workload cluster: things"
	for _, tc := range []struct {
		request, problem string
		done             int
	}{
		{request: "list NamespaceList", problem: reading},
		{request: "list ConfigMapList", problem: reading},
		{request: "list MutatingAdmissionPolicyList", problem: reading},
		{request: "list MutatingAdmissionPolicyBindingList", problem: reading},
		{request: "get Namespace", problem: "reading namespace heirloom-nodes: things"},
		{request: "apply Namespace", problem: "applying Namespace heirloom-nodes: things"},
		{request: "apply ConfigMap", problem: "applying ConfigMap nodes.heirloom.dev: things", done: 1},
		{request: "apply MutatingAdmissionPolicy", problem: "applying MutatingAdmissionPolicy nodes.heirloom.dev: things", done: 2},
		{request: "apply MutatingAdmissionPolicyBinding", problem: "applying MutatingAdmissionPolicyBinding nodes.heirloom.dev: things", done: 3},
	} {
		t.Run(tc.request, func(t *testing.T) {
			w := newWorkload(t)
			w.fail[tc.request] = forbidden
			err := ensure(w, instance(1))
			w.Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			w.Expect(err).To(MatchError(apierrors.IsForbidden, "IsForbidden"), "the loop can tell")
			delete(w.fail, tc.request)
			w.expect(everything()[tc.done:], instance(1))
			w.expect(nil, instance(1))
		})
	}
}

// What refers to something goes before it, also where the removal is interrupted.
func TestARemovalThatFailsHalfway(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "nodes.heirloom.dev", errors.New("not yours"))
	for done, tc := range []struct{ request, problem string }{
		{request: "delete MutatingAdmissionPolicyBinding", problem: "deleting MutatingAdmissionPolicyBinding nodes.heirloom.dev: things"},
		{request: "delete MutatingAdmissionPolicy", problem: "deleting MutatingAdmissionPolicy nodes.heirloom.dev: things"},
		{request: "delete ConfigMap", problem: "deleting ConfigMap nodes.heirloom.dev: things"},
		{request: "delete Namespace", problem: "deleting Namespace heirloom-nodes: things"},
	} {
		t.Run(tc.request, func(t *testing.T) {
			w := newWorkload(t)
			w.expect(everything(), instance(1))
			w.writes, w.fail[tc.request] = nil, forbidden
			w.Expect(remove(w)).To(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(ContainSubstring(tc.problem))))
			w.Expect(w.writes).To(Equal(nothing()[:done+1]))
			delete(w.fail, tc.request)
			w.writes = nil
			w.Expect(remove(w)).To(Succeed())
			w.Expect(w.writes).To(Equal(nothing()[done:]))
		})
	}
}

func TestWhatSomebodyElseHasJustDeletedIsGone(t *testing.T) {
	w := newWorkload(t)
	w.expect(everything(), instance(1))
	w.before["delete MutatingAdmissionPolicy"] = func() {
		w.Expect(w.WithWatch.Delete(t.Context(), policy.AdmissionPolicy())).To(Succeed())
	}
	w.writes = nil
	w.Expect(remove(w)).To(Succeed())
	w.Expect(w.writes).To(ContainElements(nothing()))
	w.writes = nil
	w.Expect(remove(w)).To(Succeed())
	w.Expect(w.writes).To(BeEmpty(), "nothing is left")
}

// What exists already is left alone, except that Heirloom's part of it is put right.
func TestWhatIsThereBefore(t *testing.T) {
	for _, tc := range []struct {
		name   string
		object client.Object
		writes []string
		stays  bool
	}{
		{
			name: "a namespace of the same name, which somebody else has made", object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "heirloom-nodes"}},
			writes: everything()[1:], stays: true,
		},
		{
			name: "parameters of the same name, which are nonsense", object: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-nodes", Name: policy.Name},
				Data:       map[string]string{"format": "0", "m.0": "\x00", "i..": ",,"},
			}, writes: everything(),
		},
		{name: "a binding that leads elsewhere", object: bindingTo("elsewhere"), writes: everything()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorkload(t, tc.object)
			w.expect(tc.writes, instance(1))
			for key, value := range parametersOf(t, instance(1)).Data {
				w.Expect(w.parameters("heirloom-nodes")).To(HaveKeyWithValue(key, value))
			}
			w.expect(nil, instance(1))
			w.Expect(remove(w)).To(Succeed())
			err := w.Get(t.Context(), client.ObjectKeyFromObject(tc.object), tc.object)
			w.Expect(err == nil).To(Equal(tc.stays), "%v", err)
		})
	}
}

// A look at a cluster in which all is right costs four reads.
func TestALookReadsLittleAndWritesNothing(t *testing.T) {
	w := newWorkload(t)
	w.expect(everything(), instances(3)...)
	w.reads = nil
	w.expect(nil, instances(3)...)
	w.Expect(w.reads).To(ConsistOf("list NamespaceList", "list ConfigMapList", "list MutatingAdmissionPolicyList",
		"list MutatingAdmissionPolicyBindingList"))
}

func TestWithoutRoomItIsSaidEachTimeAndWrittenOnce(t *testing.T) {
	t.Parallel()
	w := newWorkload(t)
	w.huge = true
	machines := verbose(tooMany)
	var first, again *policy.NoRoomError
	w.Expect(errors.As(ensure(w, machines...), &first)).To(BeTrue())
	w.Expect(w.writes).To(And(ContainElements(everything()[2:]), HaveLen(len(everything())+15)), "the rest is written all the same")
	w.writes = nil
	w.Expect(errors.As(ensure(w, machines...), &again)).To(BeTrue())
	w.Expect(again).To(Equal(first))
	w.Expect(w.writes).To(BeEmpty())
}

// What cannot be written is told before what has no room: it comes first to mend.
func TestAFailureIsToldBeforeAWantOfRoom(t *testing.T) {
	w := newWorkload(t)
	w.fail["apply ConfigMap"] = errors.New("away")
	w.Expect(ensure(w, verbose(tooMany)...)).To(MatchError(ContainSubstring("applying ConfigMap nodes.heirloom.dev-1-of-16: away")))
}
