// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// workload is the API server of a workload cluster that remembers what is asked of it.
type workload struct {
	client.WithWatch
	*WithT
	t             *testing.T
	reads, writes []string
	// written is how many bytes of parameters were applied.
	written int
	// fail is what a request fails with, and before what happens right before it, once; both by the request.
	fail   map[string]error
	before map[string]func()
	// huge says that new ConfigMaps are stored as they are applied, without managed fields: to work these out, the fake reads
	// megabytes as YAML.
	huge bool
	// now is the time at which it is looked at.
	now func() time.Time
}

func newWorkload(t *testing.T, objects ...client.Object) *workload {
	t.Helper()
	w := &workload{WithT: NewWithT(t), t: t, fail: map[string]error{}, before: map[string]func(){}, now: time.Now}
	w.WithWatch = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			named, ok := obj.(interface {
				GetKind() string
				GetName() string
			})
			w.Expect(ok).To(BeTrue())
			w.writes = append(w.writes, "apply "+named.GetKind()+" "+named.GetName())
			text, err := json.Marshal(obj)
			w.Expect(err).NotTo(HaveOccurred())
			w.written += len(text)
			return w.request("apply "+named.GetKind(), func() error {
				if w.huge && named.GetKind() == "ConfigMap" {
					created := &corev1.ConfigMap{}
					w.Expect(json.Unmarshal(text, created)).To(Succeed())
					return c.Create(ctx, created)
				}
				return c.Apply(ctx, obj, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			kind := obj.GetObjectKind().GroupVersionKind().Kind
			w.writes = append(w.writes, "delete "+kind+" "+obj.GetName())
			return w.request("delete "+kind, func() error { return c.Delete(ctx, obj, opts...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return w.read("get "+typeOf(obj), func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return w.read("list "+typeOf(list), func() error { return c.List(ctx, list, opts...) })
		},
	}).Build()
	return w
}

// typeOf is the kind of an object, or the name of its type without its package.
func typeOf(object runtime.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	_, name, _ := strings.Cut(fmt.Sprintf("%T", object), ".")
	return name
}

func (w *workload) read(request string, do func() error) error {
	w.reads = append(w.reads, request)
	return w.request(request, do)
}

func (w *workload) request(request string, do func() error) error {
	if before := w.before[request]; before != nil {
		delete(w.before, request)
		before()
	}
	if err := w.fail[request]; err != nil {
		return err
	}
	return do()
}

func (w *workload) ensure(machines ...*clusterv1.Machine) (bool, error) {
	return policy.Ensure(w.t.Context(), w, fleet, complete(machines...), inherit.Policy{}, w.now())
}

// expect makes what is expected with the writes that this takes, and hears of that of the binding.
func (w *workload) expect(writes []string, machines ...*clusterv1.Machine) {
	w.t.Helper()
	w.writes = nil
	registered, err := w.ensure(machines...)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.writes).To(Equal(writes))
	w.Expect(registered).To(Equal(slices.Contains(writes, "apply MutatingAdmissionPolicyBinding nodes.heirloom.dev")))
}

func (w *workload) parameters(namespace string) map[string]string {
	w.t.Helper()
	parameters := &corev1.ConfigMap{}
	w.Expect(w.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: policy.Name}, parameters)).To(Succeed())
	return parameters.Data
}

func everything() []string {
	return []string{
		"apply Namespace heirloom-nodes", "apply ConfigMap nodes.heirloom.dev",
		"apply MutatingAdmissionPolicy nodes.heirloom.dev", "apply MutatingAdmissionPolicyBinding nodes.heirloom.dev",
	}
}

func parametersOnly() []string { return []string{"apply ConfigMap nodes.heirloom.dev"} }

func policyOnly() []string { return []string{"apply MutatingAdmissionPolicy nodes.heirloom.dev"} }

func TestOnlyWhatIsMissingOrDiffersIsWritten(t *testing.T) {
	w := newWorkload(t)
	machines := instances(3)
	w.expect(everything(), machines...)
	w.expect(nil, machines...)
	w.expect(nil, machines[2], machines[0], machines[1])

	machines[1].Labels = map[string]string{"node.cluster.x-k8s.io/new": ""}
	w.expect(parametersOnly(), machines...)
	w.expect(parametersOnly(), machines[:1]...)
	w.Expect(w.parameters("heirloom-nodes")).To(Equal(parametersOf(t, machines[:1]...).Data), "what is not declared any more goes")
	w.expect(nil, machines[:1]...)

	binding := policy.Binding(1)
	w.Expect(w.Delete(t.Context(), binding)).To(Succeed())
	w.expect([]string{"apply MutatingAdmissionPolicyBinding nodes.heirloom.dev"}, machines[:1]...)
	w.expect(nil, machines[:1]...)
}

func TestWhatSomebodyChangesIsPutBack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		object client.Object
		change func(client.Object)
		writes []string
	}{
		{name: "parameters that are changed", object: &corev1.ConfigMap{}, change: func(o client.Object) { o.(*corev1.ConfigMap).Data["format"] = "9" }, writes: parametersOnly()},
		{name: "parameters that are emptied", object: &corev1.ConfigMap{}, change: func(o client.Object) { o.(*corev1.ConfigMap).Data = nil }, writes: parametersOnly()},
		{name: "parameters that are added to", object: &corev1.ConfigMap{}, change: func(o client.Object) { o.(*corev1.ConfigMap).Data["theirs"] = "1" }},
		{name: "a label that is taken away", object: &corev1.ConfigMap{}, change: func(o client.Object) { o.SetLabels(nil) }, writes: parametersOnly()},
		{name: "a label that is added", object: &corev1.ConfigMap{}, change: func(o client.Object) { o.GetLabels()["theirs"] = "1" }},
		{name: "a policy that fails closed", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			*o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.FailurePolicy = admissionregistrationv1.Fail
		}, writes: policyOnly()},
		{name: "a policy for updates, too", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			rule := &o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.MatchConstraints.ResourceRules[0]
			rule.Operations = append(rule.Operations, admissionregistrationv1.Update)
		}, writes: policyOnly()},
		{name: "a policy for the status of Nodes, too", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			rule := &o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.MatchConstraints.ResourceRules[0]
			rule.Resources = append(rule.Resources, "nodes/status")
		}, writes: policyOnly()},
		{name: "a policy with another's mutation", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			spec := &o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec
			spec.Mutations = append(spec.Mutations, *spec.Mutations[0].DeepCopy())
		}, writes: policyOnly()},
		{name: "a policy for some Nodes only", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.MatchConstraints.ObjectSelector.MatchLabels = map[string]string{"theirs": "1"}
		}, writes: policyOnly()},
		{name: "a binding that selects less", object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, change: func(o client.Object) {
			o.(*admissionregistrationv1.MutatingAdmissionPolicyBinding).Spec.ParamRef.Selector.MatchLabels["theirs"] = "1"
		}, writes: []string{"apply MutatingAdmissionPolicyBinding nodes.heirloom.dev"}},
		{name: "a policy with another's match condition", object: &admissionregistrationv1.MutatingAdmissionPolicy{}, change: func(o client.Object) {
			spec := &o.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec
			spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: "theirs", Expression: "true"})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorkload(t)
			w.expect(everything(), instance(1))
			key := client.ObjectKey{Name: policy.Name}
			if _, ok := tc.object.(*corev1.ConfigMap); ok {
				key.Namespace = "heirloom-nodes"
			}
			w.Expect(w.Get(t.Context(), key, tc.object)).To(Succeed())
			tc.change(tc.object)
			w.Expect(w.Update(t.Context(), tc.object)).To(Succeed())
			w.expect(tc.writes, instance(1))
			w.expect(nil, instance(1))
		})
	}
}

// bindingTo is the binding as it would be if the parameters were in another namespace.
func bindingTo(namespace string) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	binding := policy.Binding(1)
	binding.Spec.ParamRef.Namespace = namespace
	return binding
}

// A user who may label a Namespace of the workload cluster need not have the right to delete it. Heirloom deletes it for nobody.
func TestLabelsAloneDoNotMakeAnythingHeirlooms(t *testing.T) {
	labelled := metav1.ObjectMeta{Namespace: "theirs", Name: "theirs", Labels: policy.Binding(1).Labels}
	global := labelled
	global.Namespace = ""
	parameters, aPolicy, binding := parametersOf(t, instance(1)), policy.AdmissionPolicy(), policy.Binding(1)
	parameters.Namespace, aPolicy.Name, binding.Name = "theirs", "theirs", "theirs"
	theirs := []client.Object{&corev1.Namespace{ObjectMeta: global}, &corev1.ConfigMap{ObjectMeta: labelled}, parameters, aPolicy, binding}
	w := newWorkload(t, theirs...)
	w.expect(everything(), instance(1))
	w.now = muchLater
	w.expect(nil, instance(1))

	w.writes = nil
	w.Expect(policy.Remove(t.Context(), w)).To(BeTrue())
	w.Expect(w.writes).To(Equal(nothing()))
	for _, object := range theirs {
		w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	}
}

// The parts of another number of parts are Heirloom's all the same.
func TestParametersOfAnotherNumberOfPartsGo(t *testing.T) {
	older := parametersOf(t, instance(1))
	older.Name, older.Labels[policy.PartsLabel] = "nodes.heirloom.dev-2-of-2", "2"
	w := newWorkload(t, older)
	w.expect(append(everything(), "delete ConfigMap nodes.heirloom.dev-2-of-2"), instance(1))
}

// muchLater is when every API server has heard of everything.
func muchLater() time.Time { return time.Now().Add(time.Hour) }

func TestRemoveLeavesNothing(t *testing.T) {
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "heirloom-system", Name: "theirs", Labels: map[string]string{"app.kubernetes.io/managed-by": "heirloom"},
	}}
	w := newWorkload(t, theirs, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "heirloom-system"}})
	w.Expect(policy.Remove(t.Context(), w)).To(BeFalse())
	w.Expect(w.writes).To(BeEmpty(), "there is nothing")

	w.expect(everything(), instance(1))
	w.writes = nil
	w.Expect(policy.Remove(t.Context(), w)).To(BeTrue())
	w.Expect(w.writes).To(Equal([]string{
		"delete MutatingAdmissionPolicyBinding nodes.heirloom.dev", "delete MutatingAdmissionPolicy nodes.heirloom.dev",
		"delete ConfigMap nodes.heirloom.dev", "delete Namespace heirloom-nodes",
	}), "what refers to something goes first")

	w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
}

func TestAnAPIServerWithoutSuchPolicies(t *testing.T) {
	w := newWorkload(t)
	w.fail["list MutatingAdmissionPolicyList"] = &meta.NoKindMatchError{}
	_, err := w.ensure()
	w.Expect(meta.IsNoMatchError(err)).To(BeTrue(), "%v", err)
	w.Expect(policy.Remove(t.Context(), w)).Error().To(Succeed())
	w.Expect(w.writes).To(BeEmpty())

	w.fail["list MutatingAdmissionPolicyList"] = errors.New("away")
	w.Expect(w.ensure()).Error().To(MatchError(ContainSubstring("away")))
	w.Expect(policy.Remove(t.Context(), w)).Error().To(MatchError(ContainSubstring("away")))
	w.Expect(w.writes).To(BeEmpty())
}
