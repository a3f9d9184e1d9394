// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Action is an action of a participant, or a fault.
type Action struct {
	// After is the time since the previous action, Lasts the duration of a fault.
	After, Lasts time.Duration
	Name         string
	do           func(ctx context.Context, w *World, a Action)
}

func (a Action) String() string {
	if a.Lasts == 0 {
		return fmt.Sprintf("+%-6s %s", a.After, a.Name)
	}
	return fmt.Sprintf("+%-6s %s for %s", a.After, a.Name, a.Lasts)
}

// The keys and values that operators declare, each in its place. Foreign writers use their own keys.
var (
	labels      = []string{"node.cluster.x-k8s.io/tier", "node.cluster.x-k8s.io/rack", "node-role.kubernetes.io/gpu", "example.com/team"}
	annotations = []string{"node.cluster.x-k8s.io/note", "example.com/contact"}
	taints      = []string{"dedicated=ml:NoSchedule", "gpu=true:NoExecute", "dedicated=db:NoSchedule"}
	values      = []string{"a", "b", ""}
)

const foreignKey = "foreign.example.com/key"

// plan returns the actions of a seed. Most actions concern the same Cluster, so that they happen together there.
func plan(seed uint64, clusters, replicas int) []Action {
	dice := rand.New(rand.NewPCG(seed, 2))
	actions := make([]Action, 0, 32)
	about := dice.IntN(clusters)
	for _, declares := range []makesAction{declareLabel, declareLabel, declareAnnotation, declareTaints} {
		actions = append(actions, declares(dice, about, 0))
	}
	for range 8 + dice.IntN(16) {
		cluster := about
		if dice.IntN(4) == 0 {
			cluster = dice.IntN(clusters)
		}
		action := kinds[dice.IntN(len(kinds))](dice, cluster, dice.IntN(replicas))
		action.After = time.Duration(dice.IntN(15_000)) * time.Millisecond
		actions = append(actions, action)
	}
	return actions
}

// makesAction makes an action for a Cluster or a replica.
type makesAction func(dice *rand.Rand, cluster, replica int) Action

var kinds = []makesAction{
	declareLabel, declareLabel, declareAnnotation, declareTaints, declareTaints, scale, recreate, deleteMachine, foreignNode, foreignNode, foreignNode, staleTaints,
	kubeletWrites, kubeletWrites, deleteNode, killReplica, killClusterAPI, away, hangs, webhooksAway, webhooksSlow, cutWatches, storm, stall, stall, stall, stall,
	brief, brief,
}

func lasting(dice *rand.Rand) time.Duration { return time.Duration(1+dice.IntN(90)) * time.Second }

func declareLabel(dice *rand.Rand, cluster, _ int) Action {
	return declare(cluster, "labels", labels[dice.IntN(len(labels))], values[dice.IntN(len(values))], dice.IntN(2) == 0)
}

func declareAnnotation(dice *rand.Rand, cluster, _ int) Action {
	return declare(cluster, "annotations", annotations[dice.IntN(len(annotations))], values[dice.IntN(len(values))], dice.IntN(2) == 0)
}

func declareTaints(dice *rand.Rand, cluster, _ int) Action {
	return declare(cluster, "annotations", taint.AlwaysAnnotation, taints[dice.IntN(len(taints))], dice.IntN(2) == 0)
}

// declare sets a key in the template of a MachineDeployment. If it may drop the key, it does so where the key is declared.
func declare(cluster int, field, key, value string, drop bool) Action {
	name := fmt.Sprintf("the operator declares %s %s=%s in MachineDeployment cluster-%d", field, key, value, cluster)
	if drop {
		name += ", or drops the key if it is there"
	}
	return Action{Name: name, do: func(ctx context.Context, w *World, _ Action) {
		change := any(value)
		if _, declared := w.declared(cluster, field)[key]; drop && declared {
			change = nil
		}
		w.patchDeployment(ctx, cluster, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{field: map[string]any{key: change}}}}})
	}}
}

// declared returns the labels or annotations that the MachineDeployment of a Cluster declares.
func (w *World) declared(cluster int, field string) map[string]string {
	for _, md := range w.management.objects("MachineDeployment") {
		if md.GetName() == w.clusters[cluster].key.Name {
			found, _, err := unstructured.NestedStringMap(md.Object, "spec", "template", "metadata", field)
			w.history.must(err)
			return found
		}
	}
	return nil
}

// recreate is an operator who deletes a MachineDeployment with all objects that it owns, as a garbage collector does, and creates another
// MachineDeployment of the same name.
func recreate(_ *rand.Rand, cluster, _ int) Action {
	return Action{Name: fmt.Sprintf("the operator deletes MachineDeployment cluster-%d and what it owns, and creates it anew", cluster), do: func(ctx context.Context, w *World, _ Action) {
		name := w.clusters[cluster].key.Name
		for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine"} {
			for _, object := range w.management.objects(kind) {
				if object.GetLabels()[clusterv1.ClusterNameLabel] == name {
					w.history.must(client.IgnoreNotFound(w.management.admin.Delete(ctx, object)))
				}
			}
		}
		w.actions.Go(func() {
			for ctx.Err() == nil && apierrors.IsAlreadyExists(w.management.admin.Create(ctx, deployment(name, machines))) && !w.deploys(name) {
				sleep(ctx, time.Second)
			}
		})
	}}
}

// deploys reports whether there is a MachineDeployment of this name that is not being deleted: another action may have created it.
func (w *World) deploys(name string) bool {
	return slices.ContainsFunc(w.management.objects("MachineDeployment"), func(md *unstructured.Unstructured) bool {
		return md.GetName() == name && md.GetDeletionTimestamp() == nil
	})
}

func scale(dice *rand.Rand, cluster, _ int) Action {
	replicas := 1 + dice.IntN(5)
	return Action{
		Name: fmt.Sprintf("the operator scales MachineDeployment cluster-%d to %d", cluster, replicas),
		do: func(ctx context.Context, w *World, _ Action) {
			w.patchDeployment(ctx, cluster, map[string]any{"spec": map[string]any{"replicas": replicas}})
		},
	}
}

func (w *World) patchDeployment(ctx context.Context, cluster int, patch map[string]any) {
	raw, err := json.Marshal(patch)
	w.history.must(err)
	md := &clusterv1.MachineDeployment{}
	md.Namespace, md.Name = fleet, w.clusters[cluster].key.Name
	w.history.must(client.IgnoreNotFound(w.management.admin.Patch(ctx, md, client.RawPatch(types.MergePatchType, raw))))
}

func deleteMachine(dice *rand.Rand, cluster, _ int) Action {
	n := dice.IntN(10)
	return Action{Name: fmt.Sprintf("the operator deletes Machine %d", n), do: func(ctx context.Context, w *World, _ Action) {
		machines := w.management.objects("Machine")
		if len(machines) > 0 {
			w.history.must(client.IgnoreNotFound(w.management.admin.Delete(ctx, machines[n%len(machines)])))
		}
	}}
}

// foreignNode is a foreign writer that sets its own keys on the Nodes of a Cluster, and may remove all other taints.
func foreignNode(dice *rand.Rand, cluster, _ int) Action {
	value, removes := fmt.Sprint(dice.IntN(100)), dice.IntN(2) == 0
	name := fmt.Sprintf("a foreign writer sets its label, annotation and taint to %s on the Nodes of cluster-%d", value, cluster)
	if removes {
		name += ", and removes all other taints"
	}
	return Action{Name: name, do: func(ctx context.Context, w *World, _ Action) {
		w.foreign(ctx, cluster, func(node *corev1.Node) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, foreignKey, value)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, foreignKey, value)
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == foreignKey || removes })
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: foreignKey, Value: value, Effect: corev1.TaintEffectPreferNoSchedule})
		}, 0)
	}}
}

// staleTaints is a foreign writer that writes back complete lists of taints that it has read a while ago.
func staleTaints(dice *rand.Rand, cluster, _ int) Action {
	return Action{
		Name: fmt.Sprintf("a foreign writer reads the Nodes of cluster-%d, and will write their taints back as they are now", cluster), Lasts: lasting(dice),
		do: func(ctx context.Context, w *World, a Action) { w.foreign(ctx, cluster, func(*corev1.Node) {}, a.Lasts) },
	}
}

// foreign changes the Nodes of a Cluster without a precondition, some time after it has read them.
func (w *World) foreign(ctx context.Context, cluster int, change func(*corev1.Node), later time.Duration) {
	of := w.clusters[cluster]
	writer, err := of.as(foreignUser)
	w.history.must(err)
	nodes := &corev1.NodeList{}
	w.history.must(writer.List(ctx, nodes))
	w.actions.Go(func() {
		sleep(ctx, later)
		for i := range nodes.Items {
			node := &nodes.Items[i]
			change(node)
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"labels": only(node.Labels), "annotations": only(node.Annotations)}, "spec": map[string]any{"taints": node.Spec.Taints},
			})
			w.history.must(err)
			w.history.must(client.IgnoreNotFound(writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))))
		}
	})
}

// kubeletWrites is a kubelet that removes all entries of its Node that it may remove: annotations, and labels that are not restricted.
func kubeletWrites(dice *rand.Rand, cluster, _ int) Action {
	n := dice.IntN(10)
	return Action{Name: fmt.Sprintf("the kubelet of Node %d of cluster-%d takes all labels and annotations away that it may", n, cluster), do: func(ctx context.Context, w *World, _ Action) {
		node, kubelet := w.kubelet(cluster, n)
		if node == nil {
			return
		}
		none := map[string]any{}
		for key := range node.GetAnnotations() {
			if key != foreignKey {
				none[key] = nil
			}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{"node.cluster.x-k8s.io/tier": nil}, "annotations": none}})
		w.history.must(err)
		w.history.must(client.IgnoreNotFound(kubelet.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))))
	}}
}

// deleteNode is an operator who deletes a Node, whose kubelet registers anew.
func deleteNode(dice *rand.Rand, cluster, _ int) Action {
	n := dice.IntN(10)
	return Action{Name: fmt.Sprintf("the operator deletes Node %d of cluster-%d, and its kubelet registers anew", n, cluster), do: func(ctx context.Context, w *World, _ Action) {
		if node, _ := w.kubelet(cluster, n); node != nil {
			w.history.must(client.IgnoreNotFound(w.clusters[cluster].admin.Delete(ctx, node)))
			w.history.must(client.IgnoreAlreadyExists(w.register(ctx, w.clusters[cluster], node.GetName())))
		}
	}}
}

// kubelet returns a Node and the client of its kubelet, or nil if there is no Node.
func (w *World) kubelet(cluster, n int) (*unstructured.Unstructured, client.Client) {
	of := w.clusters[cluster]
	nodes := of.objects("Node")
	if len(nodes) == 0 {
		return nil, nil
	}
	node := nodes[n%len(nodes)]
	kubelet, err := of.as(kubeletPrefix+node.GetName(), "system:nodes", "system:authenticated")
	w.history.must(err)
	return node, kubelet
}

func only(all map[string]string) map[string]string {
	if value, ok := all[foreignKey]; ok {
		return map[string]string{foreignKey: value}
	}
	return nil
}

func killReplica(dice *rand.Rand, _, replica int) Action {
	kill, name := dice.IntN(2) == 0, fmt.Sprintf("replica %d of Heirloom is stopped", replica)
	if kill {
		name = fmt.Sprintf("replica %d of Heirloom is killed", replica)
	}
	return Action{Name: name, Lasts: lasting(dice), do: func(ctx context.Context, w *World, a Action) {
		w.restart(ctx, w.replicas[replica], kill, a.Lasts)
	}}
}

func killClusterAPI(dice *rand.Rand, _, _ int) Action {
	return Action{Name: "Cluster API is killed", Lasts: lasting(dice), do: func(ctx context.Context, w *World, a Action) {
		w.restart(ctx, w.capi, true, a.Lasts)
	}}
}

// restart ends a program, and starts it again after a while.
func (w *World) restart(ctx context.Context, p *process, kill bool, lasts time.Duration) {
	if !p.down.CompareAndSwap(false, true) {
		return
	}
	w.actions.Go(func() {
		if kill {
			p.kill()
		} else {
			p.stop()
		}
		sleep(ctx, lasts)
		p.start()
		p.down.Store(false)
	})
}

// hangs is a fault: a workload cluster accepts requests and does not answer.
func hangs(dice *rand.Rand, cluster, _ int) Action {
	return Action{Name: fmt.Sprintf("workload cluster cluster-%d hangs", cluster), Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) {
		w.goesWrong(hangsOf(w.clusters[cluster].key.Name), a.Lasts)
	}}
}

func away(dice *rand.Rand, cluster, _ int) Action {
	return Action{Name: fmt.Sprintf("workload cluster cluster-%d is away", cluster), Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) {
		of := w.clusters[cluster]
		w.goesWrong(awayOf(of.key.Name), a.Lasts)
		of.server.CutWatches()
	}}
}

func webhooksAway(dice *rand.Rand, _, _ int) Action {
	return Action{Name: "webhooks cannot be reached", Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) {
		w.goesWrong(webhooksAreAway, a.Lasts)
	}}
}

func webhooksSlow(dice *rand.Rand, _, _ int) Action {
	late := time.Duration(dice.IntN(4000)) * time.Millisecond
	return Action{Name: fmt.Sprintf("webhooks are reached %s late", late), Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) {
		w.goesWrong(webhooksAreLate, a.Lasts)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = late
	}}
}

func cutWatches(dice *rand.Rand, n, _ int) Action {
	expires := dice.IntN(2) == 0
	name := "API servers restart"
	if expires {
		name += ", and have forgotten old versions"
	}
	return Action{Name: name, do: func(_ context.Context, w *World, _ Action) {
		for _, of := range []*cluster{w.management, w.clusters[n]} {
			if expires {
				of.server.Expire()
			}
			of.server.CutWatches()
		}
	}}
}

// stall is a fault: a replica sees old versions of a kind, or of all kinds except Nodes, because the watch sends nothing.
func stall(dice *rand.Rand, _, replica int) Action {
	of := []string{"owners", "owners", "machines", "machinesets", "machinedeployments", "nodes", "fakemachines"}
	what := stallOf(fmt.Sprintf("%s-%d", heirloomUser, replica), of[dice.IntN(len(of))])
	return Action{Name: what, Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) { w.goesWrong(what, a.Lasts) }}
}

// brief is a change that is made twice while Cluster API is away: an entry that the first change declares is dropped before Cluster API has
// seen it.
func brief(dice *rand.Rand, cluster, replica int) Action {
	kill, later := killClusterAPI(dice, cluster, replica), time.Duration(1+dice.IntN(40))*time.Second
	declares := []makesAction{declareLabel, declareAnnotation, declareTaints}[dice.IntN(3)](dice, cluster, replica)
	return Action{
		Name: fmt.Sprintf("%s; %s, and again %s later", kill.Name, declares.Name, later), Lasts: later + 5*time.Second,
		do: func(ctx context.Context, w *World, a Action) {
			kill.do(ctx, w, a)
			declares.do(ctx, w, a)
			w.actions.Go(func() {
				sleep(ctx, later)
				declares.do(ctx, w, a)
			})
		},
	}
}

// storm is a fault: requests are late, fail, and lose their answers.
func storm(dice *rand.Rand, _, _ int) Action {
	return Action{Name: "requests fail and are late", Lasts: lasting(dice), do: func(_ context.Context, w *World, a Action) {
		w.goesWrong(requestsFail, a.Lasts)
	}}
}
