// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// workload is the API server of a workload cluster that records its requests.
type workload struct {
	client.WithWatch
	*WithT
	t             *testing.T
	reads, writes []string
	// fail holds the error of a request.
	fail map[string]error
}

func newWorkload(t *testing.T, objects ...client.Object) *workload {
	t.Helper()
	return serving(t, []string{"v1", "v1beta1"}, objects...)
}

// serving returns an API server that serves MutatingAdmissionPolicies in these versions.
func serving(t *testing.T, versions []string, objects ...client.Object) *workload {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	for _, version := range versions {
		for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
			mapper.Add(schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: version, Kind: kind}, meta.RESTScopeRoot)
		}
	}
	w := &workload{WithT: NewWithT(t), t: t, fail: map[string]error{}}
	w.WithWatch = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).WithReturnManagedFields().WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				named, ok := obj.(interface{ GetKind() string })
				w.Expect(ok).To(BeTrue())
				return w.write("apply "+named.GetKind(), func() error { return c.Apply(ctx, obj, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return w.write("delete "+obj.GetObjectKind().GroupVersionKind().Kind, func() error { return c.Delete(ctx, obj, opts...) })
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				request := "get " + obj.GetObjectKind().GroupVersionKind().Kind + " " + key.String()
				w.reads = append(w.reads, request)
				return w.request(request, func() error { return c.Get(ctx, key, obj, opts...) })
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("others' objects are nobody's business, and may be any number")
			},
		}).Build()
	return w
}

func (w *workload) write(request string, do func() error) error {
	w.writes = append(w.writes, request)
	return w.request(request, do)
}

func (w *workload) request(request string, do func() error) error {
	if err := w.fail[request]; err != nil {
		return err
	}
	return do()
}

func (w *workload) ensure(machines ...*clusterv1.Machine) (bool, error) {
	w.writes, w.reads = nil, nil
	return policy.Ensure(w.t.Context(), w, owner, complete(machines...), inherit.Policy{})
}

func (w *workload) remove() (bool, error) {
	w.writes, w.reads = nil, nil
	return policy.Remove(w.t.Context(), w, owner)
}

// stored reads the object of this type that Heirloom writes.
func stored[T any, P interface {
	*T
	client.Object
}](w *workload) P {
	w.t.Helper()
	object := P(new(T))
	key := client.ObjectKey{Name: policy.Name}
	if _, ok := any(object).(*corev1.ConfigMap); ok {
		key.Namespace = policy.Namespace
	}
	w.Expect(w.WithWatch.Get(w.t.Context(), key, object)).To(Succeed())
	return object
}

// owner is the Heirloom that these tests are about.
const owner = "heirloom/fleet/prod/uid"

type (
	policyObject  = admissionregistrationv1.MutatingAdmissionPolicy
	bindingObject = admissionregistrationv1.MutatingAdmissionPolicyBinding
)

var (
	everything = []string{"apply MutatingAdmissionPolicy", "apply MutatingAdmissionPolicyBinding", "apply ConfigMap"}
	nothing    = []string{"delete MutatingAdmissionPolicyBinding", "delete MutatingAdmissionPolicy", "delete ConfigMap"}
)

// Heirloom writes only what differs, the MutatingAdmissionPolicy first: if this write is forbidden, it writes nothing. It reads only its own
// objects, by name.
func TestEnsure(t *testing.T) {
	w := newWorkload(t)
	w.Expect(w.ensure(instances(3)...)).To(BeTrue())
	w.Expect(w.writes).To(Equal(everything))
	w.Expect(stored[corev1.ConfigMap](w).Data).To(Equal(parametersOf(t, instances(3)...).Data))

	w.Expect(w.ensure(instances(3)...)).To(BeFalse())
	w.Expect(w.writes).To(BeEmpty(), "nothing has changed")
	w.Expect(w.reads).To(Equal([]string{
		"get MutatingAdmissionPolicy /nodes.heirloom.dev", "get MutatingAdmissionPolicyBinding /nodes.heirloom.dev", "get ConfigMap kube-system/nodes.heirloom.dev",
	}))

	w.Expect(w.ensure(instance(1))).To(BeFalse(), "it is bound already")
	w.Expect(w.writes).To(Equal(everything[2:]), "the policy and the binding have not changed")
	w.Expect(stored[corev1.ConfigMap](w).Data).To(Equal(parametersOf(t, instance(1)).Data), "entries without a declaration are removed")
}

// Heirloom writes the MutatingAdmissionPolicy in a version that the API server serves, and prefers v1.
func TestPolicyVersions(t *testing.T) {
	for _, tc := range []struct {
		serves []string
		want   string
	}{
		{serves: []string{"v1", "v1beta1"}, want: "v1"}, {serves: []string{"v1"}, want: "v1"}, {serves: []string{"v1beta1"}, want: "v1beta1"}, {},
	} {
		w := serving(t, tc.serves)
		var versions []string
		w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				versions = append(versions, obj.(interface{ GetAPIVersion() string }).GetAPIVersion())
				return c.Apply(ctx, obj, opts...)
			},
		})
		registered, err := w.ensure()
		w.Expect(registered).To(Equal(tc.want != ""))
		if tc.want == "" {
			w.Expect(meta.IsNoMatchError(err)).To(BeTrue(), "%v", err)
			w.Expect(w.writes).To(BeEmpty())
			w.Expect(w.remove()).To(BeFalse())
			w.Expect(w.writes).To(BeEmpty(), "there is nothing")
			continue
		}
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(versions).To(Equal([]string{"admissionregistration.k8s.io/" + tc.want, "admissionregistration.k8s.io/" + tc.want, "v1"}))
		w.Expect(w.remove()).To(BeTrue())
	}
	beta := policy.AdmissionPolicy(admissionregistrationv1beta1.SchemeGroupVersion, inherit.Policy{})
	typed[admissionregistrationv1beta1.MutatingAdmissionPolicy](t, beta)
	typed[admissionregistrationv1beta1.MutatingAdmissionPolicyBinding](t, policy.Binding(admissionregistrationv1beta1.SchemeGroupVersion))
}

// unknowing is a RESTMapper that fails.
type unknowing struct{ meta.RESTMapper }

func (unknowing) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

func TestNobodyKnowsWhetherPoliciesAreServed(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := fake.NewClientBuilder().WithRESTMapper(unknowing{}).Build()
	Expect(policy.Ensure(t.Context(), server, owner, nil, inherit.Policy{})).Error().
		To(MatchError("looking for MutatingAdmissionPolicies in the workload cluster: no answer"))
	Expect(policy.Remove(t.Context(), server, owner)).Error().To(MatchError(ContainSubstring("no answer")))
}

// Heirloom restores its own fields. Fields of other managers may stay.
func TestChangedPolicyIsRestored(t *testing.T) {
	w := newWorkload(t)
	w.Expect(w.ensure(instance(1))).To(BeTrue())
	read := func() (*policyObject, *bindingObject, *corev1.ConfigMap) {
		return stored[policyObject](w), stored[bindingObject](w), stored[corev1.ConfigMap](w)
	}
	p, b, c := read()
	want := []any{*p.Spec.DeepCopy(), b.Spec.ParamRef.Name, c.DeepCopy().Data, c.DeepCopy().Labels}

	type spec = admissionregistrationv1.MutatingAdmissionPolicySpec
	for _, change := range []func(*spec){
		func(s *spec) { *s.FailurePolicy = admissionregistrationv1.Fail },
		func(s *spec) { s.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy },
		func(s *spec) { s.MatchConstraints.ObjectSelector.MatchLabels = map[string]string{"theirs": "1"} },
		func(s *spec) {
			rule := &s.MatchConstraints.ResourceRules[0]
			rule.Operations, rule.Resources = append(rule.Operations, admissionregistrationv1.Update), append(rule.Resources, "nodes/status")
		},
		func(s *spec) { s.Mutations = append(s.Mutations, *s.Mutations[0].DeepCopy()) },
		func(s *spec) { s.MatchConditions = s.MatchConditions[1:] },
		func(s *spec) { s.MatchConditions[0].Expression = "false" },
		func(s *spec) { s.Variables = s.Variables[:2] },
		func(s *spec) { slices.Reverse(s.Variables) }, // a variable uses the variables above it
	} {
		p = stored[policyObject](w)
		change(&p.Spec)
		w.Expect(w.Update(t.Context(), p)).To(Succeed())
		w.Expect(w.ensure(instance(1))).To(BeFalse())
		w.Expect(w.writes).To(Equal(everything[:1]))
		w.Expect(stored[policyObject](w).Spec).To(Equal(want[0]))
	}
	b.Spec.ParamRef.Name = "theirs"
	c.Data, c.Labels = nil, nil
	for _, object := range []client.Object{b, c} {
		w.Expect(w.Update(t.Context(), object)).To(Succeed())
	}
	w.Expect(w.ensure(instance(1))).To(BeFalse())
	w.Expect(w.writes).To(Equal(everything[1:]))
	_, b, c = read()
	w.Expect([]any{b.Spec.ParamRef.Name, c.Data, c.Labels}).To(Equal(want[1:]))
}

// Further match conditions and labels of an administrator stay, and a label causes no writes.
func TestAdditionsOfAnAdministratorStay(t *testing.T) {
	w := newWorkload(t)
	w.Expect(w.ensure(instance(1))).To(BeTrue())
	p := stored[policyObject](w)
	mine := admissionregistrationv1.MatchCondition{Name: "mine", Expression: "true"}
	p.Spec.MatchConditions = append([]admissionregistrationv1.MatchCondition{mine}, p.Spec.MatchConditions...)
	w.Expect(w.Update(t.Context(), p)).To(Succeed())
	w.Expect(w.ensure(instance(1))).To(BeFalse())
	p = stored[policyObject](w)
	w.Expect(p.Spec.MatchConditions).To(ContainElement(mine))

	p.Labels["mine"] = ""
	p.Spec.MatchConditions = slices.DeleteFunc(p.Spec.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c == mine })
	w.Expect(w.Update(t.Context(), p)).To(Succeed())
	w.Expect(w.ensure(instance(1))).To(BeFalse())
	w.Expect(w.writes).To(BeEmpty())
}

// A tenant may declare any number of Machines: the set-up ends with its context.
func TestASetUpEndsWithItsContext(t *testing.T) {
	w := newWorkload(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Expect(policy.Ensure(ctx, w, owner, complete(instances(3)...), inherit.Policy{})).Error().To(MatchError(context.Canceled))
	w.Expect(w.writes).To(BeEmpty())
}

// If a step is forbidden, the next steps are skipped. The next call goes on from there.
func TestFailedSetUpGoesOn(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "nodes.heirloom.dev", errors.New("not yours"))
	for _, tc := range []struct {
		request, problem string
		writes           int
		registered       bool
	}{
		{request: "get MutatingAdmissionPolicy /nodes.heirloom.dev", problem: "getting MutatingAdmissionPolicy nodes.heirloom.dev: things"},
		{request: "get MutatingAdmissionPolicyBinding /nodes.heirloom.dev", problem: "getting MutatingAdmissionPolicyBinding nodes.heirloom.dev: things", writes: 1},
		{request: "apply MutatingAdmissionPolicy", problem: "applying MutatingAdmissionPolicy nodes.heirloom.dev: things", writes: 1},
		{request: "apply MutatingAdmissionPolicyBinding", problem: "applying MutatingAdmissionPolicyBinding nodes.heirloom.dev: things", writes: 2},
		{request: "apply ConfigMap", problem: "applying ConfigMap nodes.heirloom.dev: things", writes: 3, registered: true},
	} {
		t.Run(tc.request, func(t *testing.T) {
			w := newWorkload(t)
			w.fail[tc.request] = forbidden
			registered, err := w.ensure(instance(1))
			w.Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			w.Expect(err).To(MatchError(apierrors.IsForbidden, "IsForbidden"), "the loop can tell")
			w.Expect(registered).To(Equal(tc.registered))
			w.Expect(w.writes).To(HaveLen(tc.writes))
			delete(w.fail, tc.request)
			w.Expect(w.ensure(instance(1))).To(Equal(!tc.registered))
			w.Expect(stored[corev1.ConfigMap](w).Data).To(Equal(parametersOf(t, instance(1)).Data))
		})
	}
}

// If Machines have no room, the objects are still written. The error of a failed write comes before the error about room: it is the first
// to fix.
func TestWithoutRoom(t *testing.T) {
	w := newWorkload(t)
	var noRoom *policy.NoRoomError
	registered, err := w.ensure(instances(1500)...)
	w.Expect(errors.As(err, &noRoom)).To(BeTrue())
	w.Expect(registered).To(BeTrue())
	w.Expect(w.writes).To(Equal(everything))
	w.fail["apply ConfigMap"] = errors.New("away")
	w.Expect(w.ensure(instances(1500)[1:]...)).Error().To(MatchError("applying ConfigMap nodes.heirloom.dev: away"))
}

// An object is removed after the objects that refer to it, also if the removal is interrupted.
func TestRemove(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "nodes.heirloom.dev", errors.New("not yours"))
	for done, request := range nothing {
		w := newWorkload(t)
		w.Expect(w.remove()).To(BeFalse(), "there is nothing")
		w.Expect(w.writes).To(BeEmpty())
		w.Expect(w.ensure(instance(1))).To(BeTrue())
		w.fail[request] = forbidden
		removed, err := w.remove()
		w.Expect(removed).To(Equal(done > 0))
		w.Expect(err).To(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(HavePrefix("deleting "))))
		w.Expect(w.writes).To(Equal(nothing[:done+1]))
		delete(w.fail, request)
		w.Expect(w.remove()).To(Equal(done == 0))
		w.Expect(w.writes).To(Equal(nothing[done:]))
	}
}

// oldAgain is an API server that no longer serves MutatingAdmissionPolicies.
type oldAgain struct{ *workload }

func (oldAgain) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// The parameters, which name Machines, are removed even if the API server no longer serves MutatingAdmissionPolicies.
func TestRemoveWherePoliciesAreServedNoLonger(t *testing.T) {
	w := newWorkload(t)
	w.Expect(w.ensure(instance(1))).To(BeTrue())
	w.writes = nil
	w.Expect(policy.Remove(t.Context(), oldAgain{w}, owner)).To(BeFalse())
	w.Expect(w.writes).To(Equal([]string{"delete ConfigMap"}))
}

func TestRemoveOfDeletedObjects(t *testing.T) {
	w := newWorkload(t)
	w.Expect(w.ensure(instance(1))).To(BeTrue())
	w.fail["delete MutatingAdmissionPolicy"] = apierrors.NewNotFound(schema.GroupResource{}, policy.Name)
	w.Expect(w.remove()).To(BeTrue())
	w.Expect(w.writes).To(Equal(nothing), "it goes on")
}

// Heirloom deletes only its own objects: a user who may label objects of the workload cluster may have no right to delete them.
func TestForeignObjectsAreNotDeleted(t *testing.T) {
	ours := policy.Binding(admissionregistrationv1.SchemeGroupVersion).GetLabels()
	theirs := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: policy.Name, Labels: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: "theirs", Labels: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: policy.Namespace, Name: policy.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "heirloom"},
		}, Data: map[string]string{"format": "0"}},
	}
	w := newWorkload(t, theirs...)
	w.Expect(w.remove()).To(BeFalse())
	w.Expect(w.writes).To(BeEmpty())
	for _, object := range theirs {
		w.Expect(w.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	}
}

// Two Heirlooms may reach the same workload cluster: a trial next to the real installation, or a restored copy of the management cluster.
// Neither removes the policy of the other. If it admits the Nodes itself, it takes the policy over.
func TestThePolicyOfAnotherHeirloom(t *testing.T) {
	for _, other := range []string{"trial/fleet/prod/uid", "heirloom/fleet/prod/restored"} {
		w := newWorkload(t)
		w.Expect(w.ensure(instance(1))).To(BeTrue())
		w.writes = nil
		removed, err := policy.Remove(t.Context(), w, other)
		w.Expect(removed).To(BeFalse())
		w.Expect(err).To(MatchError(policy.ErrForeign))
		w.Expect(w.writes).To(BeEmpty())

		w.Expect(policy.Ensure(t.Context(), w, other, complete(instance(1)), inherit.Policy{})).To(BeFalse())
		w.Expect(w.writes).To(Equal(everything))
		w.Expect(w.remove()).Error().To(MatchError(policy.ErrForeign), "it has moved")
		w.Expect(policy.Remove(t.Context(), w, other)).To(BeTrue())
	}
}
