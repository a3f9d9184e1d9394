// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// labels reads "a=1,b=2".
func labels(s string) map[string]string {
	return pairs(s, ",")
}

// annotations reads "a=1; b=2,3". Tracking annotations have short names: capi/labels, capi/annotations and capi/taints for Cluster
// API's, own/labels, own/annotations and own/taints for Heirloom's.
func annotations(s string) map[string]string {
	m := map[string]string{}
	for key, value := range pairs(s, ";") {
		for short, prefix := range map[string]string{"capi/": "cluster.x-k8s.io/", "own/": "heirloom.dev/"} {
			if name, ok := strings.CutPrefix(key, short); ok {
				key = prefix + name + "-from-machine"
			}
		}
		m[key] = value
	}
	return m
}

func pairs(s, separator string) map[string]string {
	m := map[string]string{}
	for entry := range strings.SplitSeq(s, separator) {
		if key, value, _ := strings.Cut(strings.TrimSpace(entry), "="); key != "" {
			m[key] = value
		}
	}
	return m
}

// onNode reads "gpu=true:NoSchedule, b:NoExecute".
func onNode(s string) []corev1.Taint {
	taints, err := taint.ParseList(s)
	if err != nil {
		panic(err)
	}
	return taints
}

// declared reads "gpu=true:NoSchedule, b:NoExecute@OnInitialization"; without @ the propagation is Always.
func declared(s string) []clusterv1.MachineTaint {
	var taints []clusterv1.MachineTaint
	for entry := range strings.SplitSeq(s, ",") {
		text, propagation, ok := strings.Cut(strings.TrimSpace(entry), "@")
		if !ok {
			propagation = "Always"
		}
		for _, t := range onNode(text) {
			taints = append(taints, clusterv1.MachineTaint{
				Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: clusterv1.MachineTaintPropagation(propagation),
			})
		}
	}
	return taints
}

// content is the content of a template or an object in short form.
type content struct{ labels, annotations, taints string }

func (c content) template() clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{
		ObjectMeta: clusterv1.ObjectMeta{Labels: labels(c.labels), Annotations: annotations(c.annotations)},
		Spec:       clusterv1.MachineSpec{Taints: declared(c.taints)},
	}
}

// machine returns a Machine of a worker.
func (c content) machine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: labels(c.labels), Annotations: annotations(c.annotations)},
		Spec:       clusterv1.MachineSpec{Taints: declared(c.taints)},
	}
}

// controller returns a Machine of a control plane.
func (c content) controller() *clusterv1.Machine {
	m := c.machine()
	m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	return m
}

// node returns a Node whose record confirms its tracking annotations.
func (c content) node() inherit.NodeState {
	state := inherit.NodeState{Labels: labels(c.labels), Annotations: annotations(c.annotations), Taints: onNode(c.taints)}
	listed := inherit.Record{}
	for _, prefix := range []string{"cluster.x-k8s.io/", "heirloom.dev/"} {
		listed.Labels = append(listed.Labels, strings.Split(state.Annotations[prefix+"labels-from-machine"], ",")...)
		taints, _ := taint.ParseList(state.Annotations[prefix+"taints-from-machine"]) // some tests have invalid lists on purpose
		listed.Taints = append(listed.Taints, taints...)
	}
	listed.Labels = slices.DeleteFunc(listed.Labels, func(key string) bool { return !strings.Contains(key, "kubernetes.io/") })
	if len(listed.Labels)+len(listed.Taints) == 0 {
		return state
	}
	return listed.Recorded(state)
}

// initialized returns a Node that was synced before: it has Cluster API's taints-from-machine annotation, which may be empty.
func (c content) initialized() inherit.NodeState {
	state := c.node()
	if _, ok := state.Annotations[clusterv1.TaintsFromMachineAnnotation]; !ok {
		state.Annotations[clusterv1.TaintsFromMachineAnnotation] = ""
	}
	return state
}

//nolint:gochecknoglobals // tables that nothing changes
var (
	noon                = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	kubelet, privileged = inherit.Turn{Registering: true}, inherit.Turn{}
)

// old returns a Node that registered long ago, with this state.
func old(s inherit.NodeState) inherit.Node {
	return aged(s, time.Hour)
}

func aged(s inherit.NodeState, age time.Duration) inherit.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-age)), Labels: s.Labels, Annotations: s.Annotations}}
	node.Spec.Taints = s.Taints
	return inherit.ReadNode(node, noon)
}

// planned returns the state that a plan gives to a Node, and the entries that it leaves out. A Node without Cluster API's annotation for
// taints and without a record is new.
func planned(p inherit.Policy, from inherit.NodeSource, s inherit.NodeState, turn inherit.Turn) (inherit.NodeState, inherit.Drops) {
	node := aged(s, time.Minute)
	if _, synced := s.Annotations[clusterv1.TaintsFromMachineAnnotation]; synced {
		node = old(s)
	}
	plan := p.PlanNode(node, from, turn)
	return plan.Result, plan.LeftOut
}

// unrecorded returns a Node's state without the record, which has tests of its own.
func unrecorded(s inherit.NodeState) inherit.NodeState {
	s.Labels, s.Annotations = maps.Clone(s.Labels), maps.Clone(s.Annotations)
	delete(s.Labels, inherit.RecordLabel)
	delete(s.Annotations, inherit.RecordAnnotation)
	return s
}

// describe lists the entries of a Node's state for comparison: maps sorted, taints in their order, without the record.
func describe(s inherit.NodeState) []string {
	s = unrecorded(s)
	lines := slices.Concat(describeMap("label", s.Labels), describeMap("annotation", s.Annotations))
	for _, t := range s.Taints {
		lines = append(lines, "taint "+taint.Format(t))
	}
	return lines
}

func describeMap(kind string, m map[string]string) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s %s=%s", kind, key, m[key]))
	}
	return lines
}

// describeContent lists the entries of inherited content for comparison.
func describeContent(c *inherit.Content) []string {
	if c == nil {
		return nil
	}
	lines := slices.Concat(describeMap("label", c.Labels), describeMap("annotation", c.Annotations))
	for _, t := range taint.Merge(c.Taints, nil) {
		lines = append(lines, fmt.Sprintf("taint %s=%s:%s@%s", t.Key, t.Value, t.Effect, t.Propagation))
	}
	return lines
}

func (c content) want() []string {
	return describeContent(&inherit.Content{Labels: labels(c.labels), Annotations: annotations(c.annotations), Taints: declared(c.taints)})
}

func regexes(expressions ...string) []*regexp.Regexp {
	var compiled []*regexp.Regexp
	for _, expression := range expressions {
		compiled = append(compiled, regexp.MustCompile(expression))
	}
	return compiled
}

// expectProblem expects an error that contains the text, or no error if the text is empty.
func expectProblem(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return
	}
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(text)))
}

// withProblems returns a result, and the problems of the entries that were left out.
func withProblems[T any](result T, dropped inherit.Drops) (T, error) {
	return result, dropped.Problems()
}

// whole returns a result, and panics if an entry was left out.
func whole[T any](result T, dropped inherit.Drops) T {
	if err := dropped.Problems(); err != nil {
		panic(err)
	}
	return result
}
