// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// What operators declare for the start of Nodes. Only these declarations use these keys of taints. Three of them are start-up gates.
var (
	initial      = []string{"agent=a:NoSchedule", "agent=b:NoSchedule,net=yes:NoSchedule", "agent=a:NoExecute"}
	typedInitial = []string{"agent=a:NoSchedule", "net=yes:NoSchedule"}
	untilNet     = "net=yes:NoSchedule until condition Net=True"
	untilCSI     = "csi=yes:NoSchedule until daemonset kube-system/csi"
	untilGPUs    = "accel=yes:NoSchedule until allocatable " + gpus + " and condition Net=True within 5m"
	until        = []string{untilNet + "," + untilCSI, untilNet, untilCSI, untilGPUs, untilGPUs + "," + untilCSI}
	startKeys    = []string{"agent", "net", "csi", "accel"}
	gates        = []string{netGate, csiGate, gpuGate}
)

const (
	netGate, csiGate, gpuGate = "net:NoSchedule", "csi:NoSchedule", "accel:NoSchedule"

	netCondition = corev1.NodeConditionType("Net")
	csiPod       = "csi-" // starts the name of a Pod of the DaemonSet; the name of its Node follows
	gpus         = "example.com/gpus"
	// once and gated begin what history.asked remembers about taints for the start of Nodes, and identified is the time since which a Machine
	// names its Node.
	once, gated, identified = "once ", "until ", "identified"
)

// onInitialization marks a typed taint in the value of an action.
const onInitialization = "@OnInitialization"

// declareStart declares taints for the start of the Nodes of all sets, before Heirloom is installed.
func (w *World) declareStart(ctx context.Context) {
	if !w.options.StartupTaints {
		return
	}
	for _, object := range w.setObjects() {
		w.declares(ctx, object.GetName(), inAnnotations+taint.InitializeAnnotation, &initial[0])
		w.declares(ctx, object.GetName(), inAnnotations+taint.UntilAnnotation, &until[0])
	}
}

// drawStart draws the state of what a gate waits for: mostly, the gate may open.
func drawStart(d draws) Action {
	return Action{Who: d.cluster(), N: d.below(10), Value: d.oneOf("True", "True", "False")}
}

// setCondition plays the kubelets of a Cluster. Each sets the condition of its Node for which a gate waits.
func setCondition(ctx context.Context, w *World, a Action) {
	if !w.options.StartupTaints {
		return
	}
	of := w.cluster(a.Who)
	for n := range of.objects("Node") {
		node, kubelet := w.kubelet(of, n)
		if node == nil {
			return
		}
		conditions := slices.DeleteFunc(decoded[corev1.Node](node).Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == netCondition })
		w.patchStatus(ctx, kubelet, node, "conditions", append(conditions, corev1.NodeCondition{Type: netCondition, Status: corev1.ConditionStatus(a.Value)}))
	}
}

// setGPUs plays the kubelet of a Node: its device plugin finds GPUs, or loses them.
func setGPUs(ctx context.Context, w *World, a Action) {
	if node, kubelet := w.kubelet(w.cluster(a.Who), a.N); node != nil && w.options.StartupTaints {
		w.patchStatus(ctx, kubelet, node, "allocatable", map[string]string{gpus: map[string]string{"True": "8", "False": "0"}[a.Value]})
	}
}

// setDaemonSetPod makes the Pod of a DaemonSet on a Node, and makes it ready or not.
func setDaemonSetPod(ctx context.Context, w *World, a Action) {
	of := w.cluster(a.Who)
	node, _ := w.kubelet(of, a.N)
	if node == nil || !w.options.StartupTaints {
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: csiPod + node.GetName()}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "csi", UID: "csi", Controller: new(true)}}
	pod.Spec.NodeName = node.GetName()
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.history.must(client.IgnoreAlreadyExists(of.admin.Create(ctx, pod)))
	w.patchStatus(ctx, of.admin, pod, "conditions", []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(a.Value)}})
}

func (w *World) patchStatus(ctx context.Context, by client.Client, object client.Object, field string, value any) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{field: value}})
	w.history.must(err)
	w.history.must(client.IgnoreNotFound(by.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))))
}

// starts returns what a Machine or a template declares for the start of Nodes, as history.asked remembers it.
func starts(by *unstructured.Unstructured) (says []string) {
	list, _ := taint.ParseList(by.GetAnnotations()[taint.InitializeAnnotation]) // operators write valid lists
	for id, gate := range taint.Gates(by.GetAnnotations()) {
		says = append(says, gated+id.String())
		list = append(list, gate.Taint)
	}
	for _, t := range machineTaints(by) {
		if t.Propagation == clusterv1.MachineTaintPropagationOnInitialization {
			list = append(list, taint.ForNode(t))
		}
	}
	for _, t := range list {
		says = append(says, once+taint.IDOf(t).String())
	}
	if id, _, _ := unstructured.NestedString(by.Object, "spec", "providerID"); id != "" {
		says = append(says, identified)
	}
	return says
}

// asksStill reports whether all owners of a Node have asked for something for so long that every writer must know it.
func (h *history) asksStill(node, what string) bool {
	takes := h.takes("machines", "machinepools", "machinesets", "machinedeployments", "moderncontrolplanes", "nodes", "clusters")
	return !slices.ContainsFunc(h.ownersOf(node), func(owner string) bool {
		since, asked := h.asked[owner][what]
		return !asked || time.Since(since) <= takes
	})
}

// isStart reports whether an entry of inherited is a taint for the start, which is no entry of the lists on the Node.
func isStart(entry string) bool {
	return slices.ContainsFunc(startKeys, func(key string) bool { return strings.HasPrefix(entry, "taint "+key+"=") })
}

// isWritten reports whether Heirloom has written a Node since it registered, and isNew whether Cluster API has not.
func isWritten(node *unstructured.Unstructured) bool {
	_, written := node.GetLabels()[inherit.RecordLabel]
	return written
}

func isNew(node *unstructured.Unstructured) bool {
	return has(node, clusterv1.NodeUninitializedTaint.Key+":"+string(clusterv1.NodeUninitializedTaint.Effect))
}

// has reports whether a Node has a taint with this key and effect.
func has(node *unstructured.Unstructured, id string) bool {
	return slices.ContainsFunc(taintsOf(node), func(t corev1.Taint) bool { return taint.IDOf(t).String() == id })
}

// registersFor is less than the time for which a Node counts as new.
const registersFor = 9 * time.Minute

// initializesWhole checks that the write that initializes a Node brings the taints that its owners have declared for a while: the first
// write of Heirloom, and the write of Cluster API that removes the taint uninitialized, if Heirloom has admitted it.
func (h *history) initializesWhole(w apiserver.Write) {
	name := w.After.GetName()
	young := isNew(w.Before) || time.Since(w.After.GetCreationTimestamp().Time) < registersFor
	if first := isWritten(w.After) && young; isWritten(w.Before) || !first && !h.admitsStart(w) {
		return
	}
	for _, what := range slices.Sorted(maps.Keys(h.asked[h.ownersOf(name)[0]])) {
		if id, is := strings.CutPrefix(what, once); is && h.asksStill(name, what) && !has(w.After, id) && !h.holds(w.Before, id) {
			h.violate("%s initializes Node %s without the taint %s", w.User, name, id)
		}
	}
}

// admitsStart reports whether Heirloom has admitted the write with which Cluster API initializes a Node.
func (h *history) admitsStart(w apiserver.Write) bool {
	name := w.After.GetName()
	since, known := h.asked[name][identified]
	may := h.written[clusterOf(h.ownersOf(name)[0])]
	return isNew(w.Before) && !isNew(w.After) && w.User == clusterAPI && w.Admission == "reached" && known && may.yes &&
		min(time.Since(since), time.Since(may.at)) > h.takes("machines", "nodes", "clusters")
}

// initializesOnce checks that Heirloom brings no taint for the start to a Node that it has written before. old is the stored Node.
func (h *history) initializesOnce(w apiserver.Write, old *unstructured.Unstructured) {
	if !strings.HasPrefix(w.User, heirloomUser) || !isWritten(old) {
		return
	}
	for _, t := range taintsOf(w.After) {
		if id := taint.IDOf(t).String(); slices.Contains(startKeys, t.Key) && !has(w.Before, id) {
			h.violate("%s brings the taint %s to Node %s, which is initialized", w.User, id, w.After.GetName())
		}
	}
}

// gatesIn returns the closed gates in the record of a Node, and whether the record is valid.
func gatesIn(node *unstructured.Unstructured) (closed []string, valid bool) {
	state := inherit.OfNode(decoded[corev1.Node](node))
	empty := inherit.Record{}.Recorded(inherit.NodeState{}).Labels[inherit.RecordLabel]
	_, there := state.Annotations[inherit.RecordAnnotation]
	return inherit.RecordOf(state).Gates, inherit.ValidRecord(state) != "" || !there && state.Labels[inherit.RecordLabel] == empty
}

// keepsGates checks that the first write of a Node records its closed gates, that a gate opens only when that for which it waits is there,
// and that it closes only once.
func (h *history) keepsGates(w apiserver.Write) {
	name := w.After.GetName()
	before := h.closed[name]
	after, valid := gatesIn(w.After)
	if !valid {
		return
	}
	written := isWritten(w.Before)
	_, kept := gatesIn(w.Before) // otherwise the kubelet has removed the record, perhaps for good
	h.closed[name] = after
	for _, id := range gates {
		was, is := slices.Contains(before, id), slices.Contains(after, id)
		switch {
		case written && is && !was:
			h.violate("%s closes the gate %s of Node %s again", w.User, id, name)
		case was && h.opens(w, id):
			h.violate("%s opens the gate %s of Node %s, although nothing that it waits for is there", w.User, id, name)
		case has(w.After, id) && !is && (!written || kept && was && has(w.Before, id)) && h.asksStill(name, gated+id):
			h.violate("%s does not record that the gate %s of Node %s is closed", w.User, id, name)
		}
	}
}

// opens reports whether Heirloom takes the taint of a gate from a Node too soon.
func (h *history) opens(w apiserver.Write, gate string) bool {
	return strings.HasPrefix(w.User, heirloomUser) && has(w.Before, gate) && !has(w.After, gate) && !h.holds(w.Before, gate)
}

// holds reports whether a gate of a Node may open: its condition is there, and its resource if it waits for one, or its Pod was ready when the present writer may have looked.
func (h *history) holds(node *unstructured.Unstructured, gate string) bool {
	if gate == csiGate {
		ready := h.ready[csiPod+node.GetName()]
		return ready.yes || time.Since(ready.at) <= h.takes()
	}
	status := decoded[corev1.Node](node).Status
	amount := status.Allocatable[gpus]
	return (gate == netGate || gate == gpuGate && amount.Sign() > 0) && slices.ContainsFunc(status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == netCondition && c.Status == corev1.ConditionTrue
	})
}

// readies remembers whether a Pod is ready.
func (h *history) readies(w apiserver.Write) {
	name := cmp.Or(w.After, w.Before).GetName()
	ready := w.After != nil && slices.ContainsFunc(decoded[corev1.Pod](w.After).Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if h.ready[name].yes != ready {
		h.ready[name] = since{ready, time.Now()}
	}
}

// judgeGates checks that no gate of a Node is closed that nobody declares, or for which nothing is missing.
func (w *World) judgeGates(node, template *unstructured.Unstructured) {
	closed, _ := gatesIn(node)
	declared := starts(template)
	for _, id := range closed {
		if !slices.Contains(declared, gated+id) {
			w.history.violated("Node %s ends with the closed gate %s, which nobody declares", node.GetName(), id)
		} else if w.history.holds(node, id) {
			w.history.violated("Node %s ends with the closed gate %s, although what it waits for is there", node.GetName(), id)
		}
	}
}
