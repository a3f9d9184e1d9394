// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// touched is a label that the test writes so that admission sees a child again. API servers ask about every change in this domain.
const touched = "test.x-k8s.io/touched"

// outcome is what a child carries, and which of it is ours.
type outcome struct {
	Labels, Annotations, TemplateLabels, TemplateAnnotations map[string]string
	Taints, TemplateTaints                                   []clusterv1.MachineTaint
	NodeTaints                                               []corev1.Taint
	Spec, TemplateSpec                                       clusterv1.MachineSpec
	Ours                                                     string
}

// What the webhook answers for an object and what the loop applies to it are the same, for every rule: on create, when
// the owner changes a value, and when it removes everything again.
func TestWebhookAndLoopAgree(t *testing.T) {
	t.Parallel()
	admitted, looped := sharedScene(t, admission), sharedScene(t, loop)
	always, once := clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization

	for _, tc := range []struct {
		rule          string
		before, after stage.Declared
	}{
		{
			"rules 6 and 8, labels",
			stage.Declared{Labels: map[string]string{"team": "ml", "tier": "gold"}},
			stage.Declared{Labels: map[string]string{"team": "web"}},
		},
		{
			"rules 6 and 8, annotations",
			stage.Declared{Annotations: map[string]string{"note": "one", "other": "two"}},
			stage.Declared{Annotations: map[string]string{"note": "three"}},
		},
		{
			"rules 6, 8 and 13, typed taints",
			stage.Declared{Taints: append(stage.Taints(always, "gpu=true:NoSchedule,dedicated=ml:NoExecute"), stage.Taints(once, "boot=yes:NoSchedule")...)},
			stage.Declared{Taints: stage.Taints(always, "gpu=false:NoSchedule")},
		},
		{
			"rule 13, annotated taints",
			stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule,a:NoExecute", taint.InitializeAnnotation: "boot:NoSchedule"}},
			stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: "a=b:NoExecute"}},
		},
		{
			"rule 11, Node labels",
			stage.Declared{Labels: map[string]string{"node.cluster.x-k8s.io/a": "1", "node-role.kubernetes.io/worker": "", "node-restriction.kubernetes.io/b": "2"}},
			stage.Declared{Labels: map[string]string{"node.cluster.x-k8s.io/a": "3"}},
		},
		{
			"rule 12, Node annotations",
			stage.Declared{Annotations: map[string]string{"node.cluster.x-k8s.io/a": "1", "x.node.cluster.x-k8s.io/b": "2"}},
			stage.Declared{Annotations: map[string]string{"node.cluster.x-k8s.io/a": "3"}},
		},
		{
			"rule 5, the MachineDeployment's own annotations",
			stage.Declared{OwnAnnotations: map[string]string{"owner": "me", "note": "x"}},
			stage.Declared{OwnAnnotations: map[string]string{"owner": "you"}},
		},
		{
			"rules 6 and 8, in-place fields",
			stage.Declared{Fields: func(spec *clusterv1.MachineSpec) {
				spec.Deletion.NodeDrainTimeoutSeconds, spec.Deletion.NodeDeletionTimeoutSeconds = ptr.To(int32(60)), ptr.To(int32(5))
				spec.MinReadySeconds = ptr.To(int32(7))
				spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready"}, {ConditionType: "example.com/Warm"}}
			}},
			stage.Declared{Fields: func(spec *clusterv1.MachineSpec) {
				spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(90))
				spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Warm", Polarity: clusterv1.NegativePolarityCondition}}
			}},
		},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			name := admitted.own("equal")
			a, b := member{admitted.in(t), name}, member{looped.in(t), name}
			for _, m := range []member{a, b} {
				f := m.settle(name, tc.before)
				// A Node registers minutes after its Machine was created. Initialize taints come with its first sync only,
				// so the loop must have reconciled the Machine by then.
				m.eventually(f.m, func(g Gomega) {
					g.Expect(f.m.Annotations).To(HaveLen(len(tc.before.Annotations)))
					g.Expect(f.m.Labels).To(HaveLen(3 + len(tc.before.Labels)))
					g.Expect(len(f.m.Spec.Taints)).To(BeNumerically(">=", len(tc.before.Taints)))
				})
				// Of what its cache does not have on the Machine yet, it would keep a record of its own.
				m.Eventually(func() string { return string(m.review(m.WebhookURL+"/mutate/nodes", stage.Node(name)).Patch) }).
					WithTimeout(patience).WithPolling(polling).Should(
					And(ContainSubstring("from-machine"), Not(MatchRegexp(`heirloom\.dev(/|~1)(labels|annotations)-from-machine`))))
				m.create(stage.Node(name))
			}
			expectAgreement(a, b, tc.before)
			for _, declares := range []stage.Declared{tc.after, {}} {
				a.declare(declares)
				b.declare(declares)
				expectAgreement(a, b, declares)
			}
		})
	}
}

// member is a family in one of the two scenes.
type member struct {
	*scene
	name string
}

func (m member) declare(d stage.Declared) {
	m.t.Helper()
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Home, Name: m.name}}
	m.get(md)
	fresh := stage.MachineDeployment(stage.Cluster(stage.Home, stage.Home), m.name, d)
	m.update(md, func() { md.Spec.Template, md.Annotations = fresh.Spec.Template, fresh.Annotations })
}

// expectAgreement waits until both scenes carry what is declared, and expects them to be the same.
func expectAgreement(a, b member, d stage.Declared) {
	a.t.Helper()
	a.Eventually(func(g Gomega) {
		a.touch()
		b.touch()
		for _, kind := range []client.Object{&clusterv1.MachineSet{}, &clusterv1.Machine{}, &corev1.Node{}} {
			ofWebhook, ofLoop := a.outcome(kind), b.outcome(kind)
			g.Expect(cmp.Diff(ofWebhook, ofLoop)).To(BeEmpty(), "webhook (-) and loop (+) for a %T", kind)
			for key, value := range d.Labels {
				if _, isNode := kind.(*corev1.Node); !isNode {
					g.Expect(ofWebhook.Labels).To(HaveKeyWithValue(key, value))
				}
			}
			if d.Fields != nil {
				var want clusterv1.MachineSpec
				d.Fields(&want)
				spec := ofWebhook.Spec
				if _, isSet := kind.(*clusterv1.MachineSet); isSet {
					spec = ofWebhook.TemplateSpec
				}
				if _, isNode := kind.(*corev1.Node); !isNode {
					g.Expect(spec.Deletion).To(Equal(want.Deletion))
					g.Expect(spec.ReadinessGates).To(Equal(want.ReadinessGates))
					g.Expect(spec.MinReadySeconds).To(Equal(want.MinReadySeconds))
				}
			}
			if _, isSet := kind.(*clusterv1.MachineSet); isSet {
				for key, value := range d.OwnAnnotations {
					g.Expect(ofWebhook.Annotations).To(HaveKeyWithValue(key, value))
				}
			}
			if len(d.Labels)+len(d.Annotations)+len(d.Taints)+len(d.OwnAnnotations) == 0 && d.Fields == nil {
				g.Expect(ofWebhook.Ours).To(BeEmpty(), "nothing is declared, so nothing of a %T is ours", kind)
			}
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// touch writes each child, top down, as an administrator who changes something else.
func (m member) touch() {
	m.t.Helper()
	for _, object := range m.objects() {
		m.get(object)
		m.update(object, func() {
			labels := maps.Clone(object.GetLabels())
			labels[touched] = fmt.Sprint(time.Now().UnixNano())
			object.SetLabels(labels)
		})
	}
}

func (m member) objects() []client.Object {
	meta := metav1.ObjectMeta{Namespace: stage.Home, Name: m.name}
	return []client.Object{
		&clusterv1.MachineSet{ObjectMeta: meta}, &clusterv1.Machine{ObjectMeta: meta},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}},
	}
}

func (m member) outcome(kind client.Object) outcome {
	m.t.Helper()
	var o outcome
	for _, object := range m.objects() {
		if fmt.Sprintf("%T", object) != fmt.Sprintf("%T", kind) {
			continue
		}
		m.get(object)
		o.Labels, o.Annotations, o.Ours = object.GetLabels(), object.GetAnnotations(), ours(object)
		delete(o.Labels, touched)
		switch typed := object.(type) {
		case *clusterv1.MachineSet:
			o.TemplateLabels, o.TemplateAnnotations = typed.Spec.Template.Labels, typed.Spec.Template.Annotations
			o.TemplateTaints, o.TemplateSpec = typed.Spec.Template.Spec.Taints, typed.Spec.Template.Spec
		case *clusterv1.Machine:
			o.Taints, o.Spec = typed.Spec.Taints, typed.Spec
		case *corev1.Node:
			o.NodeTaints = typed.Spec.Taints
		}
	}
	return o
}

// ours returns the fields that field manager heirloom has applied.
func ours(object client.Object) string {
	for _, entry := range object.GetManagedFields() {
		if managedfields.IsOurs(entry) {
			return entry.FieldsV1.GetRawString()
		}
	}
	return ""
}
