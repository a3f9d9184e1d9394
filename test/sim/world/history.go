// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// history has all writes and all violations, and what the oracles remember of the writes.
type history struct {
	mu     sync.Mutex
	began  time.Time
	lines  []string
	broken []string
	// takes returns the maximum time since the decision about a write that is stored now: see World.takes.
	takes func(cached ...string) time.Duration
	// policy decides in which Clusters Heirloom may write.
	policy inherit.Policy
	// version is the last resourceVersion of the management cluster.
	version uint64

	// members has the set of each Machine, by the name that the Machine, its FakeMachine and its Node share.
	members map[string]string
	// alive has the stored objects of the management cluster, and missing the time since which an object is not there any more.
	alive   map[types.UID]bool
	missing map[types.UID]time.Time
	// pools has the UIDs of MachinePools, by set.
	pools map[string]types.UID
	// topologies has the declarations of ClusterClasses and Clusters, by set and resource.
	topologies map[string]map[string]*unstructured.Unstructured
	// asked has the times since which a Machine or set has declared its taints without a break: see also starts.
	asked map[string]map[string]time.Time
	// declares has the declarations of a MachineDeployment and of its MachineSet, by set and resource.
	declares map[string]map[string]map[string]bool
	// lost has the moments at which a Machine, or a MachineDeployment and its MachineSet, have lost a declared entry.
	lost map[string]map[string]moment
	// ready says which Pods are ready, by name, and closed has the closed gates in the last valid record of a Node.
	ready  map[string]since
	closed map[string][]string
	// running has the Pods on each Node, and the times of their creation. soft says which Nodes wait for their Pods.
	budgets bool // whether Pods leave a Node before it gets a taint that evicts them
	running map[string]map[string]time.Time
	soft    map[string]since
	// turns says which Nodes have had their turn in a roll-out that is not over.
	waves bool // whether only one Cluster may have such Nodes
	turns map[string]since
	// written says whether Heirloom may write in a Cluster, and since when: its mode, and whether it is paused.
	written map[string]since
	// paced has the time at which a replica last brought a taint that evicts Pods to a Node of a Cluster.
	paced map[string]time.Time
	// excused has entries of Nodes that may stay after nobody declares them: the foreign writer has restored them after their removal, or
	// they were dropped while the kubelet had removed the record of them. The excuse ends when the entry is in the record.
	excused map[string]map[string]bool
	// blind are Nodes whose kubelets have removed the record, until it is back.
	blind map[string]bool
	// disowned has the labels and annotations of an external object that no field manager owns since a write of Cluster API. Between the creation
	// of the object and Cluster API's first apply of its metadata, all of them are; an entry that its owner drops in between stays for good.
	disowned map[string]bool
	// partial has the entries of a Machine and its FakeMachine that a provider of control planes has copied, if the create of one of them is
	// not exactly the template, because the template has just changed. Heirloom does not take these entries over, so they stay until the
	// Machine goes.
	partial map[string]bool
	// unadopted has the copies of a provider of control planes that Heirloom has not adopted yet.
	unadopted map[string]*unstructured.Unstructured
	// failures counts refused writes of Heirloom.
	failures map[string]int
}

// moment is a time and a version of the management cluster: many changes happen at the same time.
type moment struct {
	at      time.Time
	version uint64
}

// since is a state, and its begin.
type since struct {
	yes bool
	at  time.Time
}

// mostRefused is the maximum number of refused writes of one object.
const mostRefused = 200

func newHistory() *history {
	return &history{
		began: time.Now(), members: map[string]string{}, alive: map[types.UID]bool{}, missing: map[types.UID]time.Time{}, pools: map[string]types.UID{},
		topologies: map[string]map[string]*unstructured.Unstructured{}, asked: map[string]map[string]time.Time{},
		declares: map[string]map[string]map[string]bool{}, lost: map[string]map[string]moment{}, written: map[string]since{}, paced: map[string]time.Time{},
		excused: map[string]map[string]bool{}, blind: map[string]bool{}, disowned: map[string]bool{}, partial: map[string]bool{}, unadopted: map[string]*unstructured.Unstructured{},
		ready: map[string]since{}, closed: map[string][]string{},
		running: map[string]map[string]time.Time{}, soft: map[string]since{}, turns: map[string]since{}, failures: map[string]int{},
	}
}

// must records an error that only a fault of the simulation itself can cause.
func (h *history) must(err error) {
	if err != nil {
		h.violated("the simulation failed: %v", err)
	}
}

func (h *history) violated(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violate(format, args...)
}

// violate is violated for callers that hold the lock.
func (h *history) violate(format string, args ...any) {
	h.broken = append(h.broken, fmt.Sprintf("%8s  ", time.Since(h.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// note adds a line to the trace.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%8s  ", time.Since(h.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// writes returns the length of the trace, which grows with each write.
func (h *history) writes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

// last returns the last line of the trace.
func (h *history) last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines[len(h.lines)-1]
}

func (h *history) refused(node string, err error) {
	h.violated("Node %s cannot register: %v", node, err)
}

// failed counts a refused write.
func (h *history) failed(user, request string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := user + " " + request
	h.lines = append(h.lines, fmt.Sprintf("%8s  refused: %s", time.Since(h.began).Round(time.Millisecond), of))
	if h.failures[of]++; h.failures[of] == mostRefused {
		h.violate("%s is refused again and again", of)
	}
}

// now returns the last resourceVersion of the management cluster.
func (h *history) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version
}

// begins forgets the pace of a replica, which starts anew.
func (h *history) begins(replica string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.paced, func(of string, _ time.Time) bool { return strings.HasPrefix(of, replica) })
}

// stored remembers one stored version of an object, and checks it.
func (h *history) stored(server string, w apiserver.Write) {
	if w.GVR.Resource == "leases" || w.GVR.Resource == "events" {
		return
	}
	object := w.After
	if object == nil {
		object = w.Before
	}
	h.note("%-10s %-28s %-7s %s %s%s", server, w.User, w.Verb, w.GVR.Resource, object.GetName(), differences(w))
	h.mu.Lock()
	defer h.mu.Unlock()
	if server == "management" {
		h.exists(w, object)
	}
	if w.GVR.Resource == "pods" {
		h.runs(w)
		h.readies(w)
	}
	if w.After == nil {
		delete(h.soft, object.GetName())
		if w.GVR.Resource == "nodes" { // the record of its turn goes with it
			delete(h.turns, object.GetName())
		}
		return
	}
	h.remembers(w)
	if w.Before == nil {
		return
	}
	h.staysOut(w, w.Before, w.After)
	h.keepsForeign(w)
	h.keepsOrphans(w)
	switch w.GVR.Resource {
	case "machines":
		h.bringsNothingBack(w, versionOf(w.Before), setOf(w.After))
		h.ownsWhatItBrings(w)
	case "machinedeployments", "moderncontrolplanes", "machinesets", "fakemachines", "fakeconfigs":
		h.ownsWhatItBrings(w)
	case "nodes":
		h.keepsAlways(w)
		h.initializesWhole(w)
		h.initializesOnce(w, w.Before)
		h.keepsGates(w)
		if h.budgets {
			h.letsPodsLeave(w)
			h.softensFew(w)
		}
		h.bringsNothingBack(w, 0, h.ownersOf(w.After.GetName())...)
		h.recordsWhatItBrings(w)
		h.paces(server, w)
		h.takesTurns(w)
	}
}

// exists remembers which objects of the management cluster there are.
func (h *history) exists(w apiserver.Write, object *unstructured.Unstructured) {
	h.version = max(h.version, versionOf(object))
	if h.alive[object.GetUID()] = w.After != nil; w.After == nil {
		h.missing[object.GetUID()] = time.Now()
		if object.GetKind() == "MachinePool" { // nobody declares anything for its Nodes
			delete(h.asked, object.GetName())
		}
	}
}

// remembers takes the parts of a write that the checks of later writes need.
func (h *history) remembers(w apiserver.Write) {
	name, set := w.After.GetName(), setOf(w.After)
	h.copies(w, set)
	switch w.GVR.Resource {
	case "clusters":
		h.writesIn(w.After)
		h.declaresTopology(w)
	case "clusterclasses":
		h.declaresTopology(w)
	case "machinedeployments", "moderncontrolplanes", "machinepools":
		if w.GVR.Resource == "machinepools" {
			h.pools[set] = w.After.GetUID()
		}
		h.asks(set, templateOf(w.After))
		h.drops(w, set, templateOf(w.After))
	case "machinesets":
		h.drops(w, set, templateOf(w.After))
	case "machines":
		h.members[name] = set
		h.asks(name, w.After)
		if w.After.GetDeletionTimestamp() != nil {
			delete(h.asked, name)
		}
		if w.Before != nil {
			h.loses(name, inherited(w.Before), inherited(w.After))
		}
	case "fakemachines":
		h.disowns(w)
	case "nodes":
		if set = poolOf(name); set != "" {
			h.members[name] = set
		}
		h.excuses(w)
		if w.Before == nil {
			delete(h.closed, name)
			delete(h.soft, name)
			delete(h.turns, name)
		}
	}
}

// writesIn remembers whether Heirloom may write in a Cluster.
func (h *history) writesIn(cluster *unstructured.Unstructured) {
	typed := decoded[clusterv1.Cluster](cluster)
	mode, enrolled := h.policy.ModeOf(typed, nil)
	if yes := enrolled && mode == inherit.Enforce && !inherit.Paused(typed); h.written[typed.Name].yes != yes {
		h.written[typed.Name] = since{yes, time.Now()}
	}
}

// asks remembers the taints that a Machine or the template of a set declares.
func (h *history) asks(name string, by *unstructured.Unstructured) {
	now, says := map[string]time.Time{}, starts(by)
	for _, t := range alwaysOf(by) {
		says = append(says, taint.Format(t))
	}
	for _, key := range says {
		now[key] = time.Now()
		if since, ok := h.asked[name][key]; ok {
			now[key] = since
		}
	}
	h.asked[name] = now
}

// templateOf returns the template of a set as if it were a Machine.
func templateOf(set *unstructured.Unstructured) *unstructured.Unstructured {
	template, _, _ := unstructured.NestedMap(set.Object, "spec", templateField(set.GetKind()))
	if template == nil {
		template = map[string]any{}
	}
	template["kind"] = "Machine"
	return &unstructured.Unstructured{Object: template}
}

// drops remembers the entries that neither a topology nor its MachineDeployment nor its MachineSet declares any more. template has the
// declarations of one of them.
func (h *history) drops(w apiserver.Write, set string, template *unstructured.Unstructured) {
	if w.After.GetDeletionTimestamp() != nil { // another object takes its place
		return
	}
	if h.declares[set] == nil {
		h.declares[set] = map[string]map[string]bool{}
	}
	all := func() map[string]bool {
		found := map[string]bool{}
		for _, keys := range h.declares[set] {
			maps.Copy(found, keys)
		}
		return found
	}
	before := all()
	h.declares[set][w.GVR.Resource] = inherited(template)
	after := all()
	h.loses(set, before, after)
	if !maps.Equal(before, after) {
		h.spoils(set)
	}
}

// loses remembers the declared entries that an owner has lost, and the moment of the loss.
func (h *history) loses(owner string, before, after map[string]bool) {
	if h.lost[owner] == nil {
		h.lost[owner] = map[string]moment{}
	}
	for key := range before {
		if !after[key] {
			h.lost[owner][key] = moment{time.Now(), h.version}
		}
	}
	for key := range after {
		delete(h.lost[owner], key)
	}
}

// disowns remembers the entries of an external object that a write of Cluster API leaves without a field manager.
func (h *history) disowns(w apiserver.Write) {
	for _, key := range slices.Concat(labels, annotations) {
		name := w.After.GetName() + " " + key
		switch {
		case owns(w.After, "", key):
			delete(h.disowned, name)
		case w.Before != nil && w.User == clusterAPI && owns(w.Before, "", key):
			h.disowned[name] = true
		}
	}
}

// excuses remembers which entries of a Node are not Heirloom's any more: see excused and blind.
func (h *history) excuses(w apiserver.Write) {
	node, before := w.After.GetName(), map[string]bool{}
	if w.Before != nil {
		before = inherited(w.Before)
	}
	_, there := w.After.GetAnnotations()[inherit.RecordAnnotation]
	if h.excused[node] == nil || w.Before == nil {
		h.excused[node] = map[string]bool{}
	}
	after := inherited(w.After)
	for entry := range after {
		switch {
		case recorded(w.After, entry):
			delete(h.excused[node], entry)
		case !before[entry] && disturbs(w), h.blind[node] && there:
			h.excused[node][entry] = true
		}
	}
	maps.DeleteFunc(h.excused[node], func(entry string, _ bool) bool { return !after[entry] })
	h.blind[node] = !there && (h.blind[node] || strings.HasPrefix(w.User, kubeletPrefix) && w.Before != nil)
}

// disturbs reports whether a writer whom Heirloom does not follow brings an entry to a Node.
func disturbs(w apiserver.Write) bool {
	return w.User == foreignUser || strings.HasPrefix(w.User, kubeletPrefix)
}

func versionOf(object *unstructured.Unstructured) uint64 {
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64) // the API server in memory has only numbers
	return version
}

// controllerOf returns the UID of the controlling owner.
func controllerOf(object *unstructured.Unstructured) types.UID {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return ref.UID
	}
	return ""
}
