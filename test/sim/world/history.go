// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// history has all writes and all violations.
type history struct {
	mu     sync.Mutex
	began  time.Time
	lines  []string
	broken []string
	quiet  bool // whether no write may follow
	// takes returns the maximum time since the decision about a write that is stored now.
	takes func(byCache bool) time.Duration
	// asked has the times since which a Machine or MachineDeployment has declared its Always taints without a break.
	asked map[string]map[string]time.Time
	// lost has the moments at which a Machine, or a MachineDeployment and its MachineSet, have lost a declared entry.
	lost map[string]map[string]moment
	// version is the last resourceVersion of the management cluster.
	version uint64
	// paced has the time at which a replica last brought a taint that evicts Pods to a Node of a Cluster.
	paced map[string]time.Time
	// declares has the declarations of a MachineDeployment and of its MachineSet, by the Cluster.
	declares map[string]map[string]map[string]bool
	// blinded are Nodes whose kubelets have removed the records of the inherited entries: these Nodes may keep entries that are dropped
	// meanwhile.
	blinded map[string]bool
	// taken has the taints of a Node that the foreign writer has restored after Heirloom removed them: the foreign writer owns them now.
	taken map[string]bool
	// disowned has the labels and annotations of an external object that no field manager owns since a write of Cluster API. Between the creation
	// of the object and Cluster API's first apply of its metadata, all of them are; an entry that its owner drops in between stays for good.
	disowned map[string]bool
}

// moment is a time and a version of the management cluster: many changes happen at the same time.
type moment struct {
	at      time.Time
	version uint64
}

func newHistory() *history {
	return &history{
		began: time.Now(), asked: map[string]map[string]time.Time{}, lost: map[string]map[string]moment{}, taken: map[string]bool{}, disowned: map[string]bool{}, blinded: map[string]bool{},
		paced: map[string]time.Time{}, declares: map[string]map[string]map[string]bool{},
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

func (h *history) refused(node string, err error) {
	h.violated("Node %s cannot register: %v", node, err)
}

// stored checks one stored version of an object.
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
	if h.quiet {
		h.violate("%s writes %s %s after everything had settled%s", w.User, w.GVR.Resource, object.GetName(), differences(w))
	}
	if server == "management" {
		h.version = max(h.version, versionOf(object))
	}
	if w.After != nil {
		h.declared(w)
	}
	if w.Before == nil || w.After == nil {
		return
	}
	h.keepsForeign(w)
	h.disowns(w)
	switch w.GVR.Resource {
	case "machines":
		h.asks(w.After.GetName(), w.After.GetAnnotations())
		if w.After.GetDeletionTimestamp() != nil {
			delete(h.asked, w.After.GetName())
		}
		h.loses(w.After.GetName(), inherited(w.Before), inherited(w.After))
		if strings.HasPrefix(w.User, heirloomUser) {
			h.bringsNothingBack(w, versionOf(w.Before), w.After.GetLabels()[clusterv1.ClusterNameLabel])
		}
	case "nodes":
		if _, recorded := w.After.GetAnnotations()[inherit.RecordAnnotation]; !recorded && strings.HasPrefix(w.User, kubeletPrefix) {
			h.blinded[w.After.GetName()] = true
		}
		h.keepsAlways(server, w)
		h.bringsNothingBack(w, 0, w.After.GetName(), server)
		h.paces(server, w)
	}
}

// declared records the declarations of a MachineDeployment or a MachineSet.
func (h *history) declared(w apiserver.Write) {
	switch w.GVR.Resource {
	case "machinedeployments":
		annotations, _, _ := unstructured.NestedStringMap(w.After.Object, "spec", "template", "metadata", "annotations")
		h.asks(w.After.GetName(), annotations)
		h.drops(w)
	case "machinesets":
		h.drops(w)
	}
}

// disowns notes the entries of an external object that a write of Cluster API leaves without a field manager.
func (h *history) disowns(w apiserver.Write) {
	if w.GVR.Resource != "fakemachines" {
		return
	}
	for _, key := range slices.Concat(labels, annotations) {
		name := w.After.GetName() + " " + key
		switch {
		case owns(w.After, key):
			delete(h.disowned, name)
		case w.User == clusterAPI && owns(w.Before, key):
			h.disowned[name] = true
		}
	}
}

// mayStay reports whether an object may end with a label or an annotation that nobody declares.
func (h *history) mayStay(kind, name, key string) bool {
	return kind == "Node" && h.blinded[name] || h.disowned[name+" "+key]
}

// owns reports whether any field manager owns the label or annotation.
func owns(object *unstructured.Unstructured, key string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(of metav1.ManagedFieldsEntry) bool {
		return strings.Contains(of.FieldsV1.GetRawString(), `"f:`+key+`"`)
	})
}

// keepsForeign checks that only the foreign writer changes its own entries.
func (h *history) keepsForeign(w apiserver.Write) {
	if w.User == foreignUser {
		return
	}
	before, after := foreignOf(w.Before), foreignOf(w.After)
	if !slices.Equal(before, after) {
		h.violate("%s changes what is foreign on %s %s: %v became %v", w.User, w.GVR.Resource, w.After.GetName(), before, after)
	}
}

func foreignOf(object *unstructured.Unstructured) []string {
	found := []string{object.GetLabels()[foreignKey], object.GetAnnotations()[foreignKey]}
	for _, t := range taintsOf(object) {
		if t.Key == foreignKey {
			found = append(found, t.Value)
		}
	}
	return found
}

// asks records the Always taints that a MachineDeployment or a Machine declares.
func (h *history) asks(name string, annotations map[string]string) {
	now := map[string]time.Time{}
	if list, err := taint.ParseList(annotations[taint.AlwaysAnnotation]); err == nil {
		for _, t := range list {
			key := taint.Format(t)
			now[key] = time.Now()
			if since, ok := h.asked[name][key]; ok {
				now[key] = since
			}
		}
	}
	h.asked[name] = now
}

// keepsAlways checks that a write of a Node that Heirloom has admitted keeps the Always taints that its Machine and MachineDeployment
// declare.
func (h *history) keepsAlways(server string, w apiserver.Write) {
	if w.Admission != "reached" || w.After.GetDeletionTimestamp() != nil {
		return
	}
	after := taintsOf(w.After)
	for _, t := range taintsOf(w.Before) {
		since, asked := h.asked[server][taint.Format(t)]
		_, asks := h.asked[w.After.GetName()][taint.Format(t)]
		if asked && asks && time.Since(since) > h.takes(true) && !slices.Contains(after, t) {
			h.violate("%s removes the Always taint %s from Node %s, and admission lets it", w.User, taint.Format(t), w.After.GetName())
		}
	}
}

// answered checks the answer of a webhook to an update by any writer: it must not bring an entry that nobody declared any more when the
// webhook was called.
func (h *history) answered(server, replica string, asked uint64, body, answer []byte) error {
	var question, reply admissionv1.AdmissionReview
	if err := errors.Join(json.Unmarshal(body, &question), json.Unmarshal(answer, &reply)); err != nil {
		return err
	}
	if question.Request.Operation != admissionv1.Update || len(reply.Response.Patch) == 0 {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(reply.Response.Patch)
	if err != nil {
		return err
	}
	patched, err := patch.Apply(question.Request.Object.Raw)
	if err != nil {
		return err
	}
	w := apiserver.Write{User: "the webhook of " + replica, Before: &unstructured.Unstructured{}, After: &unstructured.Unstructured{}}
	if err := errors.Join(w.Before.UnmarshalJSON(question.Request.Object.Raw), w.After.UnmarshalJSON(patched)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch cluster := w.After.GetLabels()[clusterv1.ClusterNameLabel]; w.After.GetKind() {
	case "Node":
		h.bringsNothingBack(w, asked, w.After.GetName(), server)
	case "Machine":
		h.bringsNothingBack(w, asked, cluster)
	case "FakeMachine":
		h.bringsNothingBack(w, asked, w.After.GetName(), cluster)
	}
	return nil
}

// now returns the last resourceVersion of the management cluster.
func (h *history) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version
}

func versionOf(object *unstructured.Unstructured) uint64 {
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64) // the API server in memory has only numbers
	return version
}

// bringsNothingBack checks that a write of a Node or Machine brings no entry that its owners lost a while ago or, as long as no fault
// hinders the requests of the writer, before the version that the writer has seen.
func (h *history) bringsNothingBack(w apiserver.Write, seen uint64, owners ...string) {
	before, after := inherited(w.Before), inherited(w.After)
	if w.User == foreignUser {
		for _, t := range taintsOf(w.After) {
			if !slices.Contains(taintsOf(w.Before), t) {
				h.taken[w.After.GetName()+" "+taint.Format(t)] = true
			}
		}
		return
	}
	for key := range after {
		has := slices.ContainsFunc(owners, func(owner string) bool {
			lost, ok := h.lost[owner][key]
			takes := h.takes(false)
			return !ok || time.Since(lost.at) <= takes && (takes > calm || lost.version >= seen)
		})
		if !before[key] && !has {
			h.violate("%s brings %s back to %s %s, although %v have lost it a while ago", w.User, key, w.After.GetKind(), w.After.GetName(), owners)
		}
	}
}

// loses records the declared entries that an owner has lost, and the moment of the loss.
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

// drops records the entries that neither a MachineDeployment nor its MachineSet declares any more.
func (h *history) drops(w apiserver.Write) {
	if w.After.GetDeletionTimestamp() != nil { // another object takes its place
		return
	}
	cluster := w.After.GetLabels()[clusterv1.ClusterNameLabel]
	if h.declares[cluster] == nil {
		h.declares[cluster] = map[string]map[string]bool{}
	}
	all := func() map[string]bool {
		found := map[string]bool{}
		for _, keys := range h.declares[cluster] {
			maps.Copy(found, keys)
		}
		return found
	}
	before := all()
	template := &unstructured.Unstructured{Object: map[string]any{}}
	if metadata, ok, _ := unstructured.NestedMap(w.After.Object, "spec", "template", "metadata"); ok {
		template.Object["metadata"] = metadata
	}
	h.declares[cluster][w.GVR.Resource] = inherited(template)
	h.loses(cluster, before, all())
}

// paces checks that a replica brings taints that evict Pods to one Node of a Cluster in a minute, or slightly less if the first request was
// slow. Taints that the Node has had before are restored at once.
func (h *history) paces(server string, w apiserver.Write) {
	_, listed := w.Before.GetAnnotations()[clusterv1.TaintsFromMachineAnnotation]
	if _, recorded := w.Before.GetLabels()[inherit.RecordLabel]; !listed || !recorded || !strings.HasPrefix(w.User, heirloomUser) {
		return // a Node that counts as new, perhaps because its own kubelet says so
	}
	before := taintsOf(w.Before)
	for _, t := range taintsOf(w.After) {
		had := slices.ContainsFunc(inherit.TrackingAnnotations, func(name string) bool { return strings.Contains(w.Before.GetAnnotations()[name], t.Key) })
		if t.Effect != corev1.TaintEffectNoExecute || had || slices.ContainsFunc(before, func(b corev1.Taint) bool { return b.MatchTaint(&t) }) {
			continue
		}
		if since := time.Since(h.paced[w.User+server]); since < time.Minute-slow {
			h.violate("%s brings %s to Node %s, %s after the Node before it", w.User, taint.Format(t), w.After.GetName(), since)
		}
		h.paced[w.User+server] = time.Now()
	}
}

// begins forgets the pace of a replica, which starts anew.
func (h *history) begins(replica string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.paced, func(of string, _ time.Time) bool { return strings.HasPrefix(of, replica) })
}

// inherited returns the entries of an object with the keys that operators declare.
func inherited(object *unstructured.Unstructured) map[string]bool {
	found := map[string]bool{}
	for _, key := range labels {
		if value, ok := object.GetLabels()[key]; ok {
			found["label "+key+"="+value] = true
		}
	}
	for _, key := range annotations {
		if value, ok := object.GetAnnotations()[key]; ok {
			found["annotation "+key+"="+value] = true
		}
	}
	all, _ := taint.ParseList(object.GetAnnotations()[taint.AlwaysAnnotation]) // operators write valid lists
	all = append(all, taintsOf(object)...)
	for _, t := range machineTaints(object) {
		all = append(all, taint.ForNode(t))
	}
	for _, t := range all {
		found["taint "+taint.Format(t)] = true
	}
	return found
}

// decoded returns an object as its type, or an empty object if it cannot be decoded.
func decoded[T any](object *unstructured.Unstructured) *T {
	typed := new(T)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed) != nil {
		return new(T)
	}
	return typed
}

// taintsOf returns the taints of a Node.
func taintsOf(object *unstructured.Unstructured) []corev1.Taint {
	if object.GetKind() != "Node" {
		return nil
	}
	return decoded[corev1.Node](object).Spec.Taints
}

// differences lists the changes of a write to labels, annotations and taints.
func differences(w apiserver.Write) string {
	if w.After == nil || w.Before == nil {
		return ""
	}
	var parts []string
	for name, of := range map[string]func(*unstructured.Unstructured) map[string]string{
		"label": (*unstructured.Unstructured).GetLabels, "annotation": (*unstructured.Unstructured).GetAnnotations, "taint": taintMap,
	} {
		before, after := of(w.Before), of(w.After)
		for key, value := range after {
			if was, ok := before[key]; !ok || was != value {
				parts = append(parts, fmt.Sprintf("+%s %s=%s", name, key, value))
			}
		}
		for key := range before {
			if _, ok := after[key]; !ok {
				parts = append(parts, fmt.Sprintf("-%s %s", name, key))
			}
		}
	}
	if len(parts) == 0 && !reflect.DeepEqual(w.Before.Object["spec"], w.After.Object["spec"]) {
		parts = append(parts, "spec")
	}
	slices.Sort(parts)
	if w.Admission != "" {
		parts = append(parts, "(admission "+w.Admission+")")
	}
	return "  " + strings.Join(parts, " ")
}

// taintMap returns the taints of a Node or a Machine by key and effect.
func taintMap(object *unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, t := range taintsOf(object) {
		all[t.Key+":"+string(t.Effect)] = t.Value
	}
	for _, t := range machineTaints(object) {
		all[t.Key+":"+string(t.Effect)] = fmt.Sprintf("%s (%s)", t.Value, t.Propagation)
	}
	return all
}

// machineTaints returns the taints of a Machine.
func machineTaints(object *unstructured.Unstructured) []clusterv1.MachineTaint {
	if object.GetKind() != "Machine" {
		return nil
	}
	return decoded[clusterv1.Machine](object).Spec.Taints
}
