// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestClusterAPIMustBeInstalled(t *testing.T) {
	Expect := NewWithT(t).Expect
	all := []string{"Cluster", "ClusterClass", "Machine", "MachineDeployment", "MachinePool", "MachineSet"}
	serving := func(version schema.GroupVersion, without string) meta.RESTMapper {
		mapper := meta.NewDefaultRESTMapper(nil)
		for _, kind := range all {
			if kind != without {
				mapper.Add(version.WithKind(kind), meta.RESTScopeNamespace)
			}
		}
		return mapper
	}
	Expect(ClusterAPI(serving(clusterv1.GroupVersion, ""))).To(Succeed())
	for _, kind := range all {
		err := ClusterAPI(serving(clusterv1.GroupVersion, kind))
		Expect(err).To(MatchError("the API server does not serve " + kind + ": install Cluster API v1.11 or later first, which serves cluster.x-k8s.io/v1beta2"))
	}
	Expect(ClusterAPI(serving(schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta1"}, ""))).To(MatchError(ContainSubstring("install Cluster API")))
	err := ClusterAPI(unreachable{})
	Expect(err).To(MatchError(ContainSubstring("connection refused")))
	Expect(err).NotTo(MatchError(ContainSubstring("install Cluster API")), "nothing need be installed")
}

// unreachable is the mapper of an API server that does not answer.
type unreachable struct{ meta.RESTMapper }

func (unreachable) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = &Gate{}

// clusterAPI answers dry runs, and records them.
type clusterAPI struct {
	client.Client
	// answer is the result of each dry run; answers, if set, returns the result for an object.
	answer  error
	answers func(of *unstructured.Unstructured, force bool) error
	// lists holds the results of the next lists; nil answers with an empty list. Later lists return the stored objects.
	lists []error
	// limits records the limits of the lists.
	limits []int64
	asked  []*unstructured.Unstructured
	times  []time.Time
}

// errDropped stands for a success in which the API server drops the taints, as a CRD without the field does.
var errDropped = errors.New("dropped")

func newClusterAPI(t *testing.T, objects ...client.Object) *clusterAPI {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	c := &clusterAPI{}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			applied := (&client.ApplyOptions{}).ApplyOptions(options)
			NewWithT(t).Expect(applied.DryRun).To(Equal([]string{metav1.DryRunAll}), "nothing is stored")
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			c.asked, c.times = append(c.asked, &unstructured.Unstructured{Object: content}), append(c.times, time.Now())
			answer := c.answer
			if c.answers != nil {
				answer = c.answers(&unstructured.Unstructured{Object: content}, applied.Force != nil && *applied.Force)
			}
			if errors.Is(answer, errDropped) {
				delete(config.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent(), "spec")
				return nil
			}
			return answer
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			c.limits = append(c.limits, (&client.ListOptions{}).ApplyOptions(options).Limit)
			if len(c.lists) > 0 {
				err := c.lists[0]
				c.lists = c.lists[1:]
				return err
			}
			return inner.List(ctx, list, options...)
		},
	}).Build()
	return c
}

func machine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "1"}}
}

func machineSet() *clusterv1.MachineSet {
	return &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ms", UID: "2"}}
}

func TestUnreadableObjectsKeepTheState(t *testing.T) {
	away := errors.New("away")
	for problem, lists := range map[string][]error{"listing Machines: away": {away}, "listing MachineSets: away": {nil, away}} {
		Expect, c := NewWithT(t).Expect, newClusterAPI(t)
		c.lists = lists
		g := &Gate{Client: c}
		g.state.Store(int32(inherit.PropagationDisabled))
		Expect(g.detect(t.Context())).To(MatchError(problem))
		Expect(g.State()).To(Equal(inherit.PropagationDisabled))
	}
}

// The gate is probed again soon while its state is unknown, and otherwise at the interval, since it may be switched.
func TestProbingIsRepeated(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval time.Duration
		answer   error
		wait     time.Duration
	}{
		{name: "what is known is asked again after the interval", interval: 20 * time.Second, wait: 20 * time.Second},
		{name: "but once a minute at least", interval: time.Hour, wait: time.Minute},
		{name: "what is not known is asked again soon", interval: time.Hour, answer: errors.New("away"), wait: retry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				c := newClusterAPI(t, machine("m"))
				c.answer = tc.answer
				g := &Gate{Client: c, Interval: tc.interval}
				Expect(g.NeedLeaderElection()).To(BeFalse(), "every replica answers admission requests")
				var logged []string
				ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
				ctx, cancel := context.WithTimeout(ctx, 5*tc.wait)
				defer cancel()
				Expect(g.Start(ctx)).To(Succeed())
				Expect(len(c.times)).To(BeNumerically(">=", 4))
				for i := range c.times[1:] {
					Expect(c.times[i+1].Sub(c.times[i])).To(And(BeNumerically(">=", tc.wait), BeNumerically("<=", tc.wait*11/10)))
				}
				if tc.answer != nil {
					Expect(logged).To(HaveLen(len(c.times)), "each failure is logged")
					Expect(logged).To(HaveEach(ContainSubstring("probing with a dry run on Machine default/m: away")))
					return
				}
				Expect(logged).To(ConsistOf(ContainSubstring("Detected whether Cluster API propagates taints")), "a change is logged once")
			})
		})
	}
}

func invalid(at, detail string) error {
	return apierrors.NewInvalid(clusterv1.GroupVersion.WithKind("Machine").GroupKind(), "m",
		field.ErrorList{field.Forbidden(field.NewPath(at), detail)})
}

// The state of the gate follows from the API server's answer to the dry run; most answers leave it unchanged.
func TestDetect(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answer  error
		problem string
	}{
		{name: "the gate was switched off", answer: invalid("spec.taints", gateOff)},
		{name: "the taint is dropped, so the CRD is older", answer: errDropped},
		{name: "another refusal", answer: invalid("spec.version", "no"), problem: "spec.version"},
		{name: "a refusal for another reason", answer: invalid("spec.taints", "there are too many"), problem: "too many"},
		{name: "a value that names the gate", answer: invalid("spec.version", gateOff), problem: "spec.version"},
		{
			name: "a conflict, whatever its manager is called", problem: "conflict",
			answer: apierrors.NewApplyConflict(nil, `conflict with "field not declared in schema": .spec.taints: field not declared in schema`),
		},
		{
			name: "what a policy says", problem: "forbidden",
			answer: apierrors.NewForbidden(schema.GroupResource{}, "m", errors.New("MachineTaintPropagation: .spec.taints: field not declared in schema")),
		},
		{
			name: "an answer that is no API server's", problem: "not declared",
			answer: errors.New("failed to create typed patch object (x): .spec.taints: field not declared in schema"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, c := NewWithT(t).Expect, newClusterAPI(t, machine("m"))
			c.answer = tc.answer
			g := &Gate{Client: c}
			g.state.Store(int32(inherit.PropagationEnabled))
			changes := g.Subscribe()
			err := g.detect(t.Context())
			Expect(c.asked).To(HaveLen(1))
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(g.State()).To(Equal(inherit.PropagationDisabled))
				Expect(changes).To(Receive())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(g.State()).To(Equal(inherit.PropagationEnabled))
			Expect(changes).NotTo(Receive(), "subscribers are notified of changes only")
		})
	}
}

// A living object is probed before an object that is being deleted. An object in deletion is probed if there is no other, since it may stay.
func TestLivingObjectsAreProbedFirst(t *testing.T) {
	Expect := NewWithT(t).Expect
	finalized := func(name string) *clusterv1.Machine {
		m := machine(name)
		m.Finalizers = []string{"machine.cluster.x-k8s.io"}
		return m
	}
	c := newClusterAPI(t, finalized("a"), finalized("b"))
	for _, tc := range []struct{ deleted, asked string }{{"a", "b"}, {"b", "b"}} {
		Expect(c.Delete(t.Context(), machine(tc.deleted))).To(Succeed())
		c.asked = nil
		Expect((&Gate{Client: c}).detect(t.Context())).To(Succeed())
		Expect(c.asked).To(ConsistOf(And(HaveField("GetKind()", "Machine"), HaveField("GetName()", tc.asked))))
	}
	nobody := &Gate{Client: newClusterAPI(t)}
	Expect(nobody.detect(t.Context())).To(Succeed())
	Expect(nobody.State()).To(Equal(inherit.PropagationUnknown))
}

const (
	gateOff = "taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled"

	propagatedTaints = `taints: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [key, effect], items: {type: object, required: [key, effect, propagation],
		properties: {key: {type: string}, effect: {type: string}, propagation: {type: string}}}}`
)

// storing applies an object of Cluster API with these fields like an API server, with the API server's code, and returns its errors.
type storing struct {
	managedfieldstest.TestFieldManager
}

func newStoring(t *testing.T, kind string, fields ...string) storing {
	t.Helper()
	Expect := NewWithT(t).Expect
	version := clusterv1.GroupVersion
	definition := crd(t, kind, version.Version, fields...)
	definition.Spec.Group = version.Group
	document, err := builder.BuildOpenAPIV3(definition, version.Version, builder.Options{})
	Expect(err).NotTo(HaveOccurred())
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	Expect(err).NotTo(HaveOccurred())
	return storing{managedfieldstest.NewTestFieldManager(converter, version.WithKind(kind))}
}

// apply returns the API server's answer to an apply.
func (s storing) apply(object *unstructured.Unstructured, manager string, force bool) error {
	err := s.Apply(object, manager, force)
	if err == nil {
		return nil
	}
	return apierrors.FromObject(responsewriters.ErrorToAPIStatus(err))
}

// The name of a field manager does not affect the result, and a CRD without taints is recognised for each kind. The dry run applies a harmless
// taint, with the UID of the object that was read: otherwise an apply could create another object of this name.
func TestDetectWithTheAPIServersCode(t *testing.T) {
	for _, tc := range []struct {
		name, kind string
		of         client.Object
		fields     string
		owner      string
		refusal    error
		want       inherit.TaintPropagation
	}{
		{name: "a Machine has taints", kind: "Machine", of: machine("m"), fields: propagatedTaints, want: inherit.PropagationEnabled},
		{name: "a Machine has none", kind: "Machine", of: machine("m"), fields: "version: {type: string}", want: inherit.PropagationDisabled},
		{name: "a MachineSet has taints", kind: "MachineSet", of: machineSet(), fields: "template: " + object("spec: "+object(propagatedTaints)), want: inherit.PropagationEnabled},
		{name: "a MachineSet has none", kind: "MachineSet", of: machineSet(), fields: "template: " + object("spec: "+object("version: {type: string}")), want: inherit.PropagationDisabled},
		{name: "another manager owns the taint", kind: "Machine", of: machine("m"), fields: propagatedTaints, owner: "x: .spec.taints: field not declared in schema", want: inherit.PropagationEnabled},
		{name: "a webhook refuses the taints", kind: "Machine", of: machine("m"), fields: propagatedTaints, refusal: invalid("spec.taints", gateOff), want: inherit.PropagationDisabled},
		{name: "or those of a template", kind: "MachineSet", of: machineSet(), fields: "template: " + object("spec: "+object(propagatedTaints)),
			refusal: invalid("spec.template.spec.taints", gateOff), want: inherit.PropagationDisabled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := newStoring(t, tc.kind, tc.fields)
			c := newClusterAPI(t, tc.of)
			if tc.owner != "" {
				owned := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
					"taints": []any{map[string]any{"key": probeKey, "effect": "PreferNoSchedule", "propagation": "Always"}},
				}}}
				owned.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(tc.kind))
				Expect(server.apply(owned, tc.owner, false)).To(Succeed())
			}
			c.answers = func(of *unstructured.Unstructured, force bool) error {
				if err := server.apply(of, probeManager, force); err != nil || tc.refusal == nil {
					return err
				}
				status := apierrors.APIStatus(nil)
				Expect(errors.As(tc.refusal, &status)).To(BeTrue())
				result := status.Status()
				return webhookerrors.ToStatusErr("validation.cluster.x-k8s.io", &result)
			}
			g := &Gate{Client: c}
			Expect(g.detect(t.Context())).To(Succeed())
			Expect(g.State()).To(Equal(tc.want))
			Expect(c.asked).To(ConsistOf(And(HaveField("GetKind()", tc.kind), HaveField("GetUID()", tc.of.GetUID()))))
			taints, _, _ := unstructured.NestedSlice(c.asked[0].Object, map[string][]string{
				"Machine": {"spec", "taints"}, "MachineSet": {"spec", "template", "spec", "taints"},
			}[tc.kind]...)
			Expect(taints).To(ConsistOf(And(HaveKeyWithValue("effect", "PreferNoSchedule"), HaveKeyWithValue("propagation", "OnInitialization"))))
		})
	}
}

// If the gate is known to be on, the answer of a single namespace cannot turn it off; a single namespace proves that it is on.
func TestOneTenantDoesNotDecide(t *testing.T) {
	const unknown, enabled, disabled = inherit.PropagationUnknown, inherit.PropagationEnabled, inherit.PropagationDisabled
	off, away := invalid("spec.taints", gateOff), errors.New("away")
	type says map[string]error
	for _, tc := range []struct {
		name         string
		before       inherit.TaintPropagation
		says         says
		want         inherit.TaintPropagation
		undetermined bool
	}{
		{name: "one drops taints", before: enabled, says: says{"a": errDropped, "b": nil}, want: enabled},
		{name: "one drops them, and the other does not answer", before: enabled, says: says{"a": errDropped, "b": away}, want: enabled, undetermined: true},
		{name: "two agree", before: enabled, says: says{"a": off, "b": off}, want: disabled},
		{name: "two agree, and another does not answer", before: enabled, says: says{"a": off, "b": off, "c": away}, want: disabled},
		{name: "nobody answers", before: enabled, says: says{"a": away, "b": away}, want: enabled, undetermined: true},
		{name: "it was known to be off, and one proves that it is on", before: disabled, says: says{"a": errDropped, "b": nil}, want: enabled},
		{name: "it was known to be off, and one does not answer", before: disabled, says: says{"a": off, "b": away}, want: disabled},
		{name: "nothing was known, and one answers", before: unknown, says: says{"a": off, "b": away}, want: disabled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var objects []client.Object
			for namespace := range tc.says {
				m := machine("m")
				m.Namespace = namespace
				objects = append(objects, m)
			}
			c := newClusterAPI(t, objects...)
			c.answers = func(of *unstructured.Unstructured, _ bool) error { return tc.says[of.GetNamespace()] }
			g := &Gate{Client: c}
			g.state.Store(int32(tc.before))
			err := g.detect(t.Context())
			if tc.undetermined {
				Expect(err).To(MatchError(ContainSubstring("away")))
			} else {
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(g.State()).To(Equal(tc.want))
		})
	}
}

// A fleet may have Machines in a single namespace, and MachineSets in others.
func TestMachineSetsOfOtherNamespacesAreProbed(t *testing.T) {
	Expect := NewWithT(t).Expect
	other := machineSet()
	other.Namespace = "other"
	c := newClusterAPI(t, machine("m"), machineSet(), other)
	c.answers = func(of *unstructured.Unstructured, _ bool) error {
		if of.GetKind() == "Machine" {
			return errDropped
		}
		return nil
	}
	g := &Gate{Client: c}
	g.state.Store(int32(inherit.PropagationEnabled))
	Expect(g.detect(t.Context())).To(Succeed())
	Expect(g.State()).To(Equal(inherit.PropagationEnabled))
	Expect(c.asked).NotTo(ContainElement(And(HaveField("GetKind()", "MachineSet"), HaveField("GetNamespace()", "default"))), "there is a Machine")
}

// For a fleet of any size, few objects are probed, in few namespaces.
func TestFewObjectsAreProbed(t *testing.T) {
	Expect := NewWithT(t).Expect
	var objects []client.Object
	for i := range 60 {
		m := machine(fmt.Sprintf("m%d", i))
		m.Namespace = fmt.Sprintf("ns%d", i/2)
		objects = append(objects, m)
	}
	c := newClusterAPI(t, objects...)
	c.answer = invalid("spec.taints", gateOff)
	Expect((&Gate{Client: c}).detect(t.Context())).To(Succeed())
	namespaces := map[string]bool{}
	for _, of := range c.asked {
		namespaces[of.GetNamespace()] = true
	}
	Expect(c.asked).To(HaveLen(5))
	Expect(namespaces).To(HaveLen(5))
	Expect(c.limits).To(HaveEach(BeNumerically("==", 100)))
}
