// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// bystander is an object that inherits nothing, with the content that it must keep.
type bystander struct {
	object  *unstructured.Unstructured
	content content
}

// compared is an object and the JSON of its spec without the program and without the places that may change.
type compared struct {
	object *unstructured.Unstructured
	places []place
	rest   string
}

// expect expects the child to have exactly the content of its creation, the content that users have set, and the content that arrives
// from its owners.
func (l *descent) expect(g Gomega, child, bare *unstructured.Unstructured, users content, carried bool) {
	arriving := l.state.witness
	if carried {
		arriving = arriving.and(l.room.holds(l.state.declared))
	}
	for _, to := range l.into {
		want := to.read(bare.Object).and(to.holds(users), to.holds(to.arrives(arriving)))
		g.Expect(cmp.Diff(want, to.read(child.Object))).To(BeEmpty(), "wanted (-) and got (+) at %v", to.metadata)
		if to.node {
			expectTracked(g, child, to.arrives(arriving))
			return
		}
	}
	if len(arriving) == 0 {
		g.Expect(ours(child)).To(BeEmpty(), "nothing is declared, so heirloom owns nothing")
	} else {
		g.Expect(ours(child)).NotTo(BeEmpty(), "heirloom owns the inherited content")
	}
	for field, has := range map[string]func(target) bool{
		`"f:taints":`:         func(to target) bool { return to.taints != nil },
		`"f:readinessGates":`: func(to target) bool { return to.gates != nil },
	} {
		if !slices.ContainsFunc(l.into, has) {
			g.Expect(ours(child)).NotTo(ContainSubstring(field), "the %s has no such field", child.GetKind())
		}
	}
}

// expectSameFields expects heirloom to own the same fields of a child on both paths. The path of the loop comes first.
func (l *descent) expectSameFields(g Gomega, child *unstructured.Unstructured, state int) {
	key := fmt.Sprint(l.key, " ", state)
	if !l.path.admission {
		l.path.byLoop[key] = ours(child)
	} else if fields, known := l.path.byLoop[key]; known { // some children inherit in admission only
		g.Expect(cmp.Diff(fields, ours(child))).To(BeEmpty(), "owned with the loop (-) and with webhooks (+)")
	}
}

// expectTracked expects a Node's tracking annotations to list exactly the entries from its Machine.
func expectTracked(g Gomega, node *unstructured.Unstructured, arriving content) {
	listed := func(names ...string) []string {
		var all []string
		for _, name := range names {
			all = append(all, entriesOf(node.GetAnnotations()[name])...)
		}
		return all
	}
	byOperator := func(key string) bool { return strings.HasPrefix(key, "extra.example.com/") }
	for in, names := range map[column][2]string{
		labelColumn:      {clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation},
		annotationColumn: {clusterv1.AnnotationsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation},
	} {
		operators, rules := []string{}, []string{}
		for key := range arriving[in] {
			if byOperator(key) {
				operators = append(operators, key)
			} else {
				rules = append(rules, key)
			}
		}
		g.Expect(listed(names[0])).To(ConsistOf(rules))
		g.Expect(listed(names[1])).To(ConsistOf(operators))
	}
	var taints []string
	for id, value := range arriving[taintColumn] {
		if strings.HasSuffix(value, "|Always") {
			taints = append(taints, id)
		}
	}
	var tracked []string
	for _, entry := range listed(clusterv1.TaintsFromMachineAnnotation, inherit.TaintsFromMachineAnnotation) {
		id, _ := taintOf(entry)
		tracked = append(tracked, id)
	}
	g.Expect(tracked).To(ConsistOf(taints))
	g.Expect(node.GetAnnotations()).To(HaveKey(clusterv1.TaintsFromMachineAnnotation), "the Node has had its Initialize taints")
}

// standsBy stores an object that must inherit nothing.
func (l *descent) standsBy(object *unstructured.Unstructured) {
	l.t.Helper()
	bare := l.plain(object)
	l.create(object)
	l.bystanders = append(l.bystanders, &bystander{object: object, content: metadataPlace().read(bare.Object)})
	l.compare(bare, object)
}

// expectNothingElse expects the other objects to be as they are without the program. The caller waits until the child has
// inherited, so that the check is not too early.
func (l *descent) expectNothingElse() {
	l.t.Helper()
	l.expectBystanders()
	l.expectNoRollout()
}

func (l *descent) expectBystanders() {
	l.t.Helper()
	for _, b := range l.bystanders {
		if l.path.admission {
			l.Expect(l.touch(b.object)).To(Succeed())
		}
		l.get(b.object)
		l.Expect(metadataPlace().read(b.object.Object)).To(Equal(b.content), "a %s inherits nothing", b.object.GetKind())
		l.Expect(ours(b.object)).To(BeEmpty())
	}
}

// plain returns an object as the API server stores it without the program: the program skips an object with the ignore label.
func (l *descent) plain(object *unstructured.Unstructured) *unstructured.Unstructured {
	l.t.Helper()
	stored := object.DeepCopy()
	labels := maps.Clone(stored.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[inherit.IgnoreLabel] = ""
	stored.SetLabels(labels)
	providerID, isNode, _ := unstructured.NestedString(object.Object, "spec", "providerID")
	if isNode = isNode && object.GetKind() == "Node"; isNode { // the program does not skip a Node with the label
		unstructured.RemoveNestedField(stored.Object, "spec", "providerID")
	}
	stored.SetName(object.GetName() + "-plain") // the object may be there already
	l.Expect(l.Client.Create(l.ctx, stored, client.DryRunAll)).To(Succeed())
	delete(labels, inherit.IgnoreLabel)
	stored.SetLabels(labels)
	if isNode {
		set(stored.Object, providerID, "spec", "providerID")
	}
	return stored
}

// compare records the spec of bare, the object without the program; stored is the same object with content.
func (l *descent) compare(bare, stored *unstructured.Unstructured) {
	places := l.changedInPlace(stored.GetKind())
	l.compared = append(l.compared, compared{object: stored.DeepCopy(), places: places, rest: rest(bare, places)})
}

// changedInPlace returns the places of a kind that Cluster API changes without a rollout.
func (l *descent) changedInPlace(kind string) []place {
	switch kind {
	case "MachineDeployment", "MachineSet", "MachinePool":
		return []place{templatePlace()}
	case "Machine":
		return []place{machinePlace()}
	case "Node":
		return []place{nodePlace()}
	}
	for _, p := range conformingProviders() {
		if p.kind == kind {
			return []place{p.template}
		}
	}
	return nil // nothing may change in an InfraMachine, a BootstrapConfig or a template
}

// expectNoRollout expects the specs to differ from the specs without the program only in fields that Cluster API changes in place.
func (l *descent) expectNoRollout() {
	l.t.Helper()
	for _, c := range l.compared {
		l.get(c.object)
		l.Expect(rest(c.object, c.places)).To(Equal(c.rest), "the spec of the %s", c.object.GetKind())
	}
}

func rest(object *unstructured.Unstructured, places []place) string {
	object = object.DeepCopy()
	for _, at := range places {
		at.cut(object.Object)
	}
	spec, err := json.Marshal(object.Object["spec"])
	must(err)
	return string(spec)
}
