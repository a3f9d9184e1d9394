// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// turn is the time of a Node's turn. The world's time is two minutes later.
var turn = time.Date(2026, time.October, 31, 23, 58, 0, 0, time.UTC)

// clusters are Clusters with a MachineSet each, whose Machines declare a NoExecute taint.
type clusters struct {
	management []client.Object
	workload   map[string][]client.Object
}

// add adds a Cluster with these Nodes: done, leaving (Pods must leave) or waits.
func (c *clusters) add(name, marks string, nodes ...string) {
	cluster := &clusterv1.Cluster{ObjectMeta: fleet.Named(name, ""), Status: clusterv1.ClusterStatus{
		Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: new(true)},
	}}
	cluster.Labels, _ = labels.ConvertSelectorToLabelsMap(marks)
	set := &clusterv1.MachineSet{ObjectMeta: fleet.Named(name+"-set", ""), Spec: clusterv1.MachineSetSpec{ClusterName: name}}
	c.management = append(c.management, cluster, set)
	for i, state := range nodes {
		id := fmt.Sprintf("%s-%d", name, i)
		m := &clusterv1.Machine{ObjectMeta: fleet.Named(id, "MachineSet/"+name+"-set"), Spec: clusterv1.MachineSpec{
			ClusterName: name, ProviderID: "test://" + id,
			Taints: []clusterv1.MachineTaint{{Key: "drain", Effect: corev1.TaintEffectNoExecute, Propagation: clusterv1.MachineTaintPropagationAlways}},
		}}
		m.Status.NodeRef.Name = id
		record := inherit.Record{}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: metav1.NewTime(turn.Add(-time.Hour))}, Spec: corev1.NodeSpec{ProviderID: "test://" + id}}
		switch state {
		case "done":
			record.Evicted = turn
			node.Spec.Taints = []corev1.Taint{{Key: "drain", Effect: corev1.TaintEffectNoExecute}}
		case "leaving":
			record.Softened = turn
		}
		recorded := record.Recorded(inherit.OfNode(node))
		node.Labels, node.Annotations = recorded.Labels, recorded.Annotations
		c.management = append(c.management, m)
		c.workload[name] = append(c.workload[name], node)
	}
}

// ask asks about Clusters of a Heirloom with these flags.
func (c *clusters) ask(t *testing.T, flags string, names ...string) *Status {
	t.Helper()
	w := fleet.World(t, fleet.Server(c.management...).Build(), strings.Fields(flags)...)
	w.Nodes = func(_ context.Context, cluster types.NamespacedName) (client.Reader, error) {
		if cluster.Name == "silent" {
			return nil, errors.New("i/o timeout")
		}
		return fleet.Server(c.workload[cluster.Name]...).WithInterceptorFuncs(fleet.Asks(func(request string) error {
			if cluster.Name == "blind" && request == "list PodList" {
				return errors.New("forbidden")
			}
			return nil
		})).Build(), nil
	}
	q := Question{World: &w, Named: true}
	for _, name := range names {
		q.Clusters = append(q.Clusters, types.NamespacedName{Namespace: "default", Name: name})
	}
	answer, err := Ask(t.Context(), q)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return answer
}

func text(t *testing.T, answer *Status) string {
	t.Helper()
	var out bytes.Buffer
	NewWithT(t).Expect(cli.NewPrintFlags().Print(&out, false, answer)).To(Succeed())
	return out.String() + strings.Join(append(answer.Sentences(), ""), "\n")
}

// Each state has its reason, and people read what to do next.
func TestStates(t *testing.T) {
	c := &clusters{workload: map[string][]client.Object{}}
	c.add("blind", "heirloom.dev/wave=1", "leaving", "waits")
	c.add("done", "heirloom.dev/wave=1", "done", "done")
	c.add("halted", "heirloom.dev/wave=1", "done", "waits")
	c.add("heldup", "heirloom.dev/wave=1", "leaving", "waits", "waits")
	c.add("idle", "")
	c.add("late", "", "waits")
	c.add("paused", "heirloom.dev/wave=1,heirloom.dev/no-execute=paused", "waits")
	c.add("running", "heirloom.dev/wave=1,heirloom.dev/no-execute-rate=0.5", "done", "leaving", "waits", "waits")
	c.add("silent", "")
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "heldup-0"}}
	}
	budget := func(allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}
	}
	stuck, free := pod("web-0"), pod("web-0")
	free.Spec.NodeName = "running-1"
	nowhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "nowhere"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(turn.Add(time.Minute)),
	}}}}
	c.workload["heldup"] = append(c.workload["heldup"], stuck, budget(0))
	c.workload["running"] = append(c.workload["running"], free, budget(1))
	c.workload["halted"] = append(c.workload["halted"], nowhere)
	answer := c.ask(t, "--no-execute-clusters=6", "blind", "done", "halted", "heldup", "idle", "late", "paused", "running", "silent")
	fleet.Golden(t, "states", text(t, answer))
	NewWithT(t).Expect(answer.Unread()).To(BeTrue())
	NewWithT(t).Expect(answer.Over()).To(BeFalse())
	NewWithT(t).Expect(c.ask(t, "", "done", "idle").Over()).To(BeTrue())
}

// A Cluster that waits for its place ends after the Clusters before it, and after the time for which each keeps its place. The end is not
// known behind a Cluster that does not go on. The order also counts Clusters about which nobody asks.
func TestEstimate(t *testing.T) {
	g, c := NewWithT(t), &clusters{workload: map[string][]client.Object{}}
	c.add("a", "", "done", "waits", "waits", "waits")
	c.add("b", "", "waits", "waits")
	c.add("c", "", "waits")
	left := func(names ...string) (all []string) {
		for _, r := range c.ask(t, "--no-execute-clusters=1 --no-execute-soak=5m", names...).Rollouts {
			all = append(all, string(r.State)+" "+r.eta())
		}
		return all
	}
	// a: its last Node after 2 minutes, its place until 7; b: its last Node after 8 minutes, its place until 13.
	g.Expect(left("a", "b", "c")).To(Equal([]string{"Running 2m", "Waiting 8m", "Waiting 13m"}))
	g.Expect(left("c")).To(Equal([]string{"Waiting 13m"}))
	c.management[0].SetLabels(map[string]string{inherit.NoExecuteLabel: inherit.NoExecutePaused})
	g.Expect(left("a", "b")).To(Equal([]string{"Paused unknown", "Waiting unknown"}))
}
