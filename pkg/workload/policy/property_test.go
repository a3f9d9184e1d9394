// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

var fleet = types.NamespacedName{Namespace: "fleet", Name: "prod"}

// parametersOf are the parameters of these Machines, which have room.
func parametersOf(t *testing.T, machines ...*clusterv1.Machine) *corev1.ConfigMap {
	t.Helper()
	return parametersBy(t, inherit.Policy{}, complete(machines...))
}

func parametersBy(t *testing.T, rules inherit.Policy, machines []inherit.Machine) *corev1.ConfigMap {
	t.Helper()
	parameters, err := policy.Parameters(fleet, machines, rules)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return typed[corev1.ConfigMap](t, parameters)
}

// complete are Machines that have everything already.
func complete(machines ...*clusterv1.Machine) []inherit.Machine {
	all := make([]inherit.Machine, 0, len(machines))
	for _, m := range machines {
		all = append(all, inherit.Machine{Actual: m, Effective: m})
	}
	return all
}

// dice makes Machines and Nodes out of few words, so that they meet often.
type dice struct{ *rand.Rand }

func (d dice) pick(words ...string) string { return words[d.IntN(len(words))] }

func (d dice) chance(n int) bool { return d.IntN(n) == 0 }

func (d dice) providerID() string {
	return d.pick("", "", "aws:///z/i-1", "aws:///z/i-2", "x://α/ß", "azure:///a.b/c/0", "p://-", "1")
}

func (d dice) name() string {
	return d.pick("a", "b", "c", "ip-10-0-0-1.eu.compute.internal", "10.0.0.1", "10.0.1.1", "fd00::1", "α", "n.", "a%0Ab")
}

func (d dice) nodeName() string { return d.pick("a", "b", "c", "ip-10-0-0-1.eu.compute.internal") }

func (d dice) map_(keys ...string) map[string]string {
	m := map[string]string{}
	for _, key := range keys {
		if d.chance(3) {
			m[key] = d.pick("", "1", "two")
		}
	}
	return m
}

func (d dice) taints() string {
	var taints []corev1.Taint
	for range d.IntN(4) {
		t, err := taint.Parse(d.pick("a", "a-b", "example.com/c") + d.pick("", "=1", "=2") + ":" + d.pick("NoSchedule", "NoExecute"))
		if err != nil {
			panic(err)
		}
		taints = append(taint.Remove(taints, taint.IDOf(t)), t)
	}
	return taint.FormatList(taints)
}

func (d dice) machine(number int) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: fmt.Sprintf("m%d", number), UID: types.UID(fmt.Sprint(number)),
		Labels: d.map_("node-role.kubernetes.io/w", "node-restriction.kubernetes.io/x", "node.cluster.x-k8s.io/y", "z.node.cluster.x-k8s.io/q",
			"team", "topology.kubernetes.io/zone", clusterv1.MachineControlPlaneLabel),
		Annotations: d.map_("node.cluster.x-k8s.io/a", "team", "other"),
	}}
	if d.chance(3) {
		m.Annotations["node.cluster.x-k8s.io/odd"] = d.pick("a=b,c", "two\nlines\n", "100%0A%25", "'\"\\ α", "guard\n\n\nheirloom.dev/ignore=")
	}
	for name, annotation := range map[string]string{"always": taint.AlwaysAnnotation, "initialize": taint.InitializeAnnotation} {
		if d.chance(3) {
			m.Annotations[annotation] = d.taints() + d.pick("", ",broken", ",node.kubernetes.io/x:NoSchedule", ","+name+":PreferNoSchedule")
		}
	}
	parsed, _ := taint.ParseList(d.taints())
	for _, t := range parsed {
		m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{
			Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: clusterv1.MachineTaintPropagation(d.pick("Always", "OnInitialization")),
		})
	}
	m.Spec.ProviderID = d.providerID()
	if d.chance(4) {
		m.Status.NodeRef.Name = d.nodeName()
	}
	for range d.IntN(3) {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{
			Type: clusterv1.MachineAddressType(d.pick("Hostname", "InternalIP", "InternalDNS", "ExternalIP")), Address: d.name(),
		})
	}
	if d.chance(8) {
		m.Annotations[clusterv1.PausedAnnotation] = ""
	}
	return m
}

// behind is a Machine that may have yet to inherit some of what it will have.
func (d dice) behind(effective *clusterv1.Machine) inherit.Machine {
	if d.chance(2) {
		return inherit.Machine{Actual: effective, Effective: effective}
	}
	actual := *effective
	actual.Labels, actual.Annotations = d.some(actual.Labels), d.some(actual.Annotations)
	actual.Spec.Taints = actual.Spec.Taints[d.IntN(len(actual.Spec.Taints)+1):]
	return inherit.Machine{Actual: &actual, Effective: effective}
}

func (d dice) some(all map[string]string) map[string]string {
	some := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if d.chance(2) {
			some[key] = all[key]
		}
	}
	return some
}

func (d dice) node() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.nodeName()}}
	if !d.chance(4) {
		node.Labels = d.map_("kubernetes.io/hostname", "team", "node.cluster.x-k8s.io/y")
	}
	if !d.chance(3) {
		node.Annotations = d.map_("mine", "node.cluster.x-k8s.io/a", "cluster.x-k8s.io/labels-from-machine", "cluster.x-k8s.io/annotations-from-machine",
			"cluster.x-k8s.io/taints-from-machine", "heirloom.dev/labels-from-machine", "heirloom.dev/annotations-from-machine",
			"heirloom.dev/taints-from-machine", "heirloom.dev/uninitialized")
	}
	node.Spec.ProviderID = d.providerID()
	node.Spec.Taints, _ = taint.ParseList(d.taints() + d.pick("", ",node.cluster.x-k8s.io/uninitialized:NoSchedule",
		",node.cluster.x-k8s.io/uninitialized:NoExecute", ",node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"))
	for range d.IntN(3) {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeAddressType(d.pick("Hostname", "InternalIP", "InternalDNS", "ExternalIP")), Address: d.name(),
		})
	}
	return node
}

// expected is what the rules make of a Node that registers, as owners.Chain.EvaluateNode does: by inherit.Match and by
// inherit.Policy.Node. Only the policy knows no Machine that has a Node, leaves to the loop who may be such a Machine's by a name, and
// does not record that a Node was found by an address.
func expected(node *corev1.Node, machines []inherit.Machine, rules inherit.Policy) (inherit.NodeState, *clusterv1.Machine) {
	var pending []*clusterv1.Machine
	effective, names, others := map[string]*clusterv1.Machine{}, sets.Set[string]{}, sets.Set[string]{}
	for _, m := range machines {
		effective[m.Actual.Name] = m.Effective
		if m.Actual.Status.NodeRef.Name == "" {
			pending = append(pending, m.Actual)
			names.Insert(inherit.MachineNames(m.Actual)...)
		} else {
			others.Insert(append(inherit.MachineNames(m.Actual), m.Actual.Status.NodeRef.Name)...)
		}
	}
	m := inherit.Match(node, pending)
	byName := m != nil && (m.Spec.ProviderID == "" || m.Spec.ProviderID != node.Spec.ProviderID)
	if m == nil || byName && names.Intersection(others).HasAny(inherit.NodeNames(node)...) {
		return inherit.OfNode(node, time.Now()), nil
	}
	if _, skipped := rules.SkipsNode(m, &clusterv1.Cluster{}); skipped {
		return inherit.OfNode(node, time.Now()), nil
	}
	state, _ := rules.Node(inherit.SourceOfMachine(effective[m.Name]).AheadOf(m), inherit.OfNode(node, time.Now()), inherit.Kubelet)
	return state, m
}

// elses reports whether a Node, by what the rules know, is another Machine's than this. Where a Machine has this Node already, the
// policy knows only its names: a Node that comes again and claims another Machine's providerID or address is taken for that one's,
// until the loop's first write.
func elses(node *corev1.Node, machines []inherit.Machine, m *clusterv1.Machine) bool {
	var all []*clusterv1.Machine
	for _, m := range machines {
		all = append(all, m.Actual)
		if m.Actual.Status.NodeRef.Name == node.Name {
			return false
		}
	}
	is := inherit.Match(node, all)
	return m != nil && (is == nil || is.Name != m.Name)
}

// TestThePolicyEqualsTheRules holds for every fleet and every Node: the policy makes of the Node what the rules make of
// it, and once more does not change it.
func TestThePolicyEqualsTheRules(t *testing.T) {
	t.Parallel()
	evaluators := map[[2]string]*evaluator{}
	d := dice{rand.New(rand.NewPCG(2026, 7))}
	matched, behind, left := 0, 0, 0
	for i := range 2000 {
		var machines []inherit.Machine
		for number := range d.IntN(6) {
			machines = append(machines, d.behind(d.machine(number)))
		}
		taints, additional := inherit.TaintPropagation(d.IntN(3)), [2]string{d.pick("^$", "team", ".*"), d.pick("^$", "team", ".*")}
		rules := inherit.Policy{
			ClusterAPITaints:      taints,
			AdditionalLabels:      []*regexp.Regexp{regexp.MustCompile(additional[0])},
			AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile(additional[1])},
		}
		e := evaluators[additional]
		if e == nil {
			e = evaluatorBy(t, rules)
			evaluators[additional] = e
		}
		node := d.node()
		want, m := expected(node, machines, rules)
		if m != nil {
			matched++
			if strings.Contains(want.Annotations[inherit.LabelsFromMachineAnnotation], clusterv1.ManagedNodeLabelDomain) {
				behind++ // Cluster API lists such a key once its Machine has it
			}
		} else if len(machines) > 1 {
			left++
		}
		if elses(node, machines, m) {
			t.Fatalf("run %d: Node %+v would get what %+v declares", i, node, m)
		}
		parameters := parametersBy(t, rules, machines)
		once := e.register(node, parameters)
		if got := inherit.OfNode(once, time.Now()); !got.Equal(want) {
			t.Fatalf("run %d: for Node %+v and Machine %+v\ngot  %+v\nwant %+v\nparameters %q", i, node, m, got, want, parameters.Data)
		}
		if again := e.register(once, parameters); !inherit.OfNode(again, time.Now()).Equal(want) {
			t.Fatalf("run %d: to be invoked again changes the Node %+v\ngot  %+v\nwant %+v", i, node, inherit.OfNode(again, time.Now()), want)
		}
	}
	NewWithT(t).Expect(matched).To(BeNumerically(">", 200), "the dice make Nodes that have Machines")
	NewWithT(t).Expect(behind).To(BeNumerically(">", 20), "the dice make Nodes that are ahead of their Machines")
	NewWithT(t).Expect(left).To(BeNumerically(">", 100), "the dice make Nodes that have none")
}

// TestParametersDoNotDependOnTheOrder keeps a list in another order from being written.
func TestParametersDoNotDependOnTheOrder(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(2026, 8))}
	var machines []*clusterv1.Machine
	for number := range 30 {
		machines = append(machines, d.machine(number))
	}
	first := parametersOf(t, machines...)
	for range 10 {
		d.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		for _, m := range machines {
			slices.Reverse(m.Status.Addresses)
		}
		NewWithT(t).Expect(parametersOf(t, machines...)).To(Equal(first))
	}
	NewWithT(t).Expect(slices.Collect(maps.Keys(first.Data))).To(HaveEach(MatchRegexp(`^[-._a-zA-Z0-9]+$`)))
}
