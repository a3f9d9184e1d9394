// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	gateOff = "taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled"

	propagatedTaints = `taints: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [key, effect], items: {type: object, required: [key, effect, propagation],
		properties: {key: {type: string}, effect: {type: string}, propagation: {type: string}}}}`
)

// storing is what an API server stores of an object of Cluster API with these fields. It applies with an API server's own code, and answers
// with its code.
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

// apply answers to an apply.
func (s storing) apply(object *unstructured.Unstructured, manager string, force bool) error {
	err := s.Apply(object, manager, force)
	if err == nil {
		return nil
	}
	return apierrors.FromObject(responsewriters.ErrorToAPIStatus(err))
}

// Nobody decides by the name of a field manager, and a CRD without taints is recognised for each kind.
func TestWhatAnAPIServerAnswers(t *testing.T) {
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
		})
	}
}

// Once the gate is known to be on, no tenant can say alone that it is off, and a single namespace proves that it is on.
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
		{name: "one refuses them", before: enabled, says: says{"a": off, "b": nil}, want: enabled},
		{name: "all but one drop them", before: enabled, says: says{"a": errDropped, "b": errDropped, "c": errDropped, "d": nil}, want: enabled},
		{name: "one drops them, and the other does not answer", before: enabled, says: says{"a": errDropped, "b": away}, want: enabled, undetermined: true},
		{name: "two agree", before: enabled, says: says{"a": off, "b": off}, want: disabled},
		{name: "two agree, and another does not answer", before: enabled, says: says{"a": off, "b": off, "c": away}, want: disabled},
		{name: "there is one namespace", before: enabled, says: says{"a": off}, want: disabled},
		{name: "nobody answers", before: enabled, says: says{"a": away, "b": away}, want: enabled, undetermined: true},
		{name: "it was known to be off, and one proves that it is on", before: disabled, says: says{"a": errDropped, "b": nil}, want: enabled},
		{name: "it was known to be off, and one does not answer", before: disabled, says: says{"a": off, "b": away}, want: disabled},
		{name: "nothing was known, and one proves that it is on", before: unknown, says: says{"a": errDropped, "b": nil}, want: enabled},
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
func TestMachineSetsOfOtherNamespacesAreAsked(t *testing.T) {
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

// However large a fleet is, few of its objects are looked at, and of few namespaces.
func TestFewAreAsked(t *testing.T) {
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
