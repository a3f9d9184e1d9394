// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// parametersOf returns the parameters of these Machines, and expects room for all.
func parametersOf(t *testing.T, machines ...*clusterv1.Machine) *corev1.ConfigMap {
	t.Helper()
	return parametersBy(t, inherit.Policy{}, complete(machines...))
}

func parametersBy(t *testing.T, rules inherit.Policy, machines []inherit.Machine) *corev1.ConfigMap {
	t.Helper()
	parameters, err := policy.Parameters(t.Context(), machines, rules)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return typed[corev1.ConfigMap](t, parameters)
}

// complete returns Machines that already have all their inherited entries.
func complete(machines ...*clusterv1.Machine) []inherit.Machine {
	all := make([]inherit.Machine, 0, len(machines))
	for _, m := range machines {
		all = append(all, inherit.Machine{Actual: m, Effective: m})
	}
	return all
}

// TestMain draws a seed for each run, and prints it. A failure prints how to repeat it.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", strconv.FormatInt(time.Now().UnixNano(), 10))
	_ = flag.Set("rapid.checks", "2000")
	flag.Parse()
	_ = flag.Set("test.short", "false") // with -short, rapid tries a fifth
	fmt.Println("-rapid.seed=" + flag.Lookup("rapid.seed").Value.String())
	m.Run()
}

// Machines and Nodes have few different values, so that many of them match.
var (
	providerIDs = rapid.SampledFrom([]string{"", "", "aws:///z/i-1", "aws:///z/i-2", "x://α/ß", "azure:///a.b/c/0", "p://-", "1"})
	nodeNames   = rapid.SampledFrom([]string{"a", "b", "c", "ip-10-0-0-1.eu.compute.internal"})
	addresses   = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) clusterv1.MachineAddress {
		return clusterv1.MachineAddress{
			Type:    oneOf[clusterv1.MachineAddressType](t, "Hostname", "InternalIP", "InternalDNS", "ExternalIP"),
			Address: oneOf(t, "a", "b", "c", "ip-10-0-0-1.eu.compute.internal", "10.0.0.1", "10.0.1.1", "fd00::1", "α", "n.", "a%0Ab"),
		}
	}), 0, 2)
	taints = rapid.Map(rapid.SliceOfNDistinct(rapid.StringMatching(`(a|a-b|example\.com/c)(=[12])?:(NoSchedule|NoExecute)`), 0, 3, func(s string) taint.ID {
		parsed, _ := taint.Parse(s)
		return taint.IDOf(parsed)
	}), func(all []string) string { return strings.Join(all, ",") })
	annotatedTaints = rapid.Custom(func(t *rapid.T) string {
		return taints.Draw(t, "") + oneOf(t, "", ",broken", ",node.kubernetes.io/x:NoSchedule", ",always:PreferNoSchedule")
	})
)

func oneOf[T any](t *rapid.T, all ...T) T { return rapid.SampledFrom(all).Draw(t, "") }

func once(t *rapid.T, in int) bool { return rapid.IntRange(1, in).Draw(t, "") == in }

// someOf returns a map with some of the keys.
func someOf(t *rapid.T, keys ...string) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"", "1", "two"}), 0, len(keys)).Draw(t, "")
}

var aMachine = rapid.Custom(func(t *rapid.T) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Labels: someOf(t, "node-role.kubernetes.io/w", "node-restriction.kubernetes.io/x", "node.cluster.x-k8s.io/y", "z.node.cluster.x-k8s.io/q",
			"team", "topology.kubernetes.io/zone", clusterv1.MachineControlPlaneLabel, inherit.IgnoreLabel),
		Annotations: someOf(t, "node.cluster.x-k8s.io/a", "team", "other"),
	}}
	if once(t, 3) {
		m.Annotations["node.cluster.x-k8s.io/odd"] = oneOf(t, "a=b,c", "two\nlines\n", "100%0A%25", "'\"\\ α", "guard\n\n\nheirloom.dev/ignore=")
	}
	for _, annotation := range []string{taint.AlwaysAnnotation, taint.InitializeAnnotation} {
		if once(t, 3) {
			m.Annotations[annotation] = annotatedTaints.Draw(t, "")
		}
	}
	if once(t, 3) {
		m.Annotations[taint.UntilAnnotation] = oneOf(t, "gate:NoSchedule until condition Net=True",
			"gate=x:NoExecute until daemonset a/b and allocatable nvidia.com/gpu within 5m, a:NoSchedule until csinode b", "gate:NoSchedule until typo")
	}
	parsed, _ := taint.ParseList(taints.Draw(t, ""))
	for _, declared := range parsed {
		m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{
			Key: declared.Key, Value: declared.Value, Effect: declared.Effect, Propagation: oneOf[clusterv1.MachineTaintPropagation](t, "Always", "OnInitialization"),
		})
	}
	m.Spec.ProviderID, m.Status.Addresses = providerIDs.Draw(t, ""), addresses.Draw(t, "")
	if once(t, 4) {
		m.Status.NodeRef.Name = nodeNames.Draw(t, "")
	}
	if once(t, 8) {
		m.Annotations[clusterv1.PausedAnnotation] = ""
	}
	return m
})

func fleetOf(n int) *rapid.Generator[[]*clusterv1.Machine] {
	return rapid.Map(rapid.SliceOfN(aMachine, n, n), func(all []*clusterv1.Machine) []*clusterv1.Machine {
		for number, m := range all {
			m.Namespace, m.Name, m.UID = "fleet", fmt.Sprintf("m%d", number), types.UID(fmt.Sprint(number))
		}
		return all
	})
}

// behind returns a Machine that may lack some of the entries of its effective state.
func behind(t *rapid.T, effective *clusterv1.Machine) inherit.Machine {
	if rapid.Bool().Draw(t, "has it all") {
		return inherit.Machine{Actual: effective, Effective: effective}
	}
	actual := effective.DeepCopy()
	for _, all := range []map[string]string{actual.Labels, actual.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if rapid.Bool().Draw(t, "lacks "+key) {
				delete(all, key)
			}
		}
	}
	actual.Spec.Taints = actual.Spec.Taints[rapid.IntRange(0, len(actual.Spec.Taints)).Draw(t, ""):]
	return inherit.Machine{Actual: actual, Effective: effective}
}

var aNode = rapid.Custom(func(t *rapid.T) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNames.Draw(t, "")}}
	if !once(t, 4) {
		node.Labels = someOf(t, "kubernetes.io/hostname", "team", "node.cluster.x-k8s.io/y")
	}
	if !once(t, 3) {
		node.Annotations = someOf(t, "mine", "node.cluster.x-k8s.io/a", "cluster.x-k8s.io/labels-from-machine", "cluster.x-k8s.io/annotations-from-machine",
			"cluster.x-k8s.io/taints-from-machine", "heirloom.dev/labels-from-machine", "heirloom.dev/annotations-from-machine",
			"heirloom.dev/taints-from-machine", "heirloom.dev/uninitialized")
	}
	node.Spec.ProviderID = providerIDs.Draw(t, "")
	node.Spec.Taints, _ = taint.ParseList(taints.Draw(t, "") + oneOf(t, "", ",node.cluster.x-k8s.io/uninitialized:NoSchedule",
		",node.cluster.x-k8s.io/uninitialized:NoExecute", ",node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"))
	for i := range node.Spec.Taints {
		if once(t, 3) { // a NoExecute taint counts from its timeAdded
			node.Spec.Taints[i].TimeAdded = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
	}
	for _, address := range addresses.Draw(t, "") {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(address.Type), Address: address.Address})
	}
	return node
})

// expected returns the Node that the rules make of a registering Node, as owners.Chain.SourceOf does: with inherit.Match and
// inherit.Policy.PlanNode. Unlike SourceOf, the MutatingAdmissionPolicy does not know Machines that have a Node, leaves a Node that may be
// such a Machine's by a name to the loop, and does not record that a Node was found by an address.
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
		return inherit.OfNode(node), nil
	}
	if _, skipped := rules.SkipsNode(m, &clusterv1.Cluster{}); skipped {
		return inherit.OfNode(node), nil
	}
	from, registering := inherit.SourceOfMachine(effective[m.Name]).AheadOf(m), inherit.Turn{Registering: true}
	state := rules.PlanNode(inherit.ReadNode(node, time.Now()), from, registering).Result
	return state, m
}

// elses reports whether the rules match the Node with another Machine. Of a Machine that has this Node already, the MutatingAdmissionPolicy
// knows only the names: if the Node registers again and claims another Machine's providerID or address, it is matched with the other
// Machine until the loop's first write.
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

func sameTime(a, b corev1.Taint) bool { return a.TimeAdded.Equal(b.TimeAdded) }

// TestThePolicyEqualsTheRules holds for every fleet and every Node: the MutatingAdmissionPolicy and the rules make the same Node, and a
// second evaluation does not change it.
func TestThePolicyEqualsTheRules(t *testing.T) {
	evaluators := map[[2]string]*evaluator{}
	matched, ahead, left := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var machines []inherit.Machine
		fleet, node := fleetOf(rapid.IntRange(0, 5).Draw(rt, "")).Draw(rt, "Machines"), aNode.Draw(rt, "Node")
		if len(fleet) > 0 && once(rt, 3) { // enough Nodes are matched, for every seed
			node.Spec.ProviderID, fleet[0].Spec.ProviderID, fleet[0].Status.NodeRef.Name = "aws:///z/own", "aws:///z/own", ""
		}
		for _, m := range fleet {
			machines = append(machines, behind(rt, m))
		}
		additional := [2]string{oneOf(rt, "^$", "team", ".*"), oneOf(rt, "^$", "team", ".*")}
		rules := inherit.Policy{
			ClusterAPITaints:      inherit.TaintPropagation(rapid.IntRange(0, 2).Draw(rt, "gate")),
			AdditionalLabels:      []*regexp.Regexp{regexp.MustCompile(additional[0])},
			AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile(additional[1])},
		}
		e := evaluators[additional]
		if e == nil {
			e = evaluatorBy(t, rules)
			evaluators[additional] = e
		}
		want, m := expected(node, machines, rules)
		if m != nil {
			matched++
			if strings.Contains(want.Annotations[inherit.LabelsFromMachineAnnotation], clusterv1.ManagedNodeLabelDomain) {
				ahead++ // Cluster API lists this key once its Machine has it
			}
		} else if len(machines) > 1 {
			left++
		}
		if elses(node, machines, m) {
			rt.Fatalf("Node %+v would get what %+v declares", node, m)
		}
		parameters := parametersBy(t, rules, machines)
		once := e.register(node, parameters)
		if got := inherit.OfNode(once); !got.Equal(want) || !slices.EqualFunc(got.Taints, want.Taints, sameTime) {
			rt.Fatalf("for Node %+v and Machine %+v\ngot  %+v\nwant %+v\nparameters %q", node, m, got, want, parameters.Data)
		}
		if again := e.register(once, parameters); !inherit.OfNode(again).Equal(want) {
			rt.Fatalf("to be invoked again changes the Node %+v\ngot  %+v\nwant %+v", node, inherit.OfNode(again), want)
		}
	})
	NewWithT(t).Expect(matched).To(BeNumerically(">", 200), "there are Nodes that have Machines")
	NewWithT(t).Expect(ahead).To(BeNumerically(">", 20), "there are Nodes that are ahead of their Machines")
	NewWithT(t).Expect(left).To(BeNumerically(">", 100), "there are Nodes that have none")
}

// TestParametersDoNotDependOnTheOrder keeps the loop from writing a list again in another order.
func TestParametersDoNotDependOnTheOrder(t *testing.T) {
	machines := fleetOf(30).Example(8)
	first := parametersOf(t, machines...)
	for seed := range 10 {
		machines = rapid.Permutation(machines).Example(seed)
		for _, m := range machines {
			slices.Reverse(m.Status.Addresses)
		}
		NewWithT(t).Expect(parametersOf(t, machines...)).To(Equal(first))
	}
	NewWithT(t).Expect(slices.Collect(maps.Keys(first.Data))).To(HaveEach(MatchRegexp(`^[-._a-zA-Z0-9]+$`)))
}
