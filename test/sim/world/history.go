// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// history has everything that was written, and what of it must not be.
type history struct {
	mu     sync.Mutex
	began  time.Time
	lines  []string
	broken []string
	quiet  bool // whether nothing may be written any more
	// takes returns how long ago a write that is stored now may have been decided.
	takes func() time.Duration
	// asked has since when a Machine has asked for an Always taint without a break, and lost since when it has lost a key.
	asked, lost map[string]map[string]time.Time
}

func newHistory() *history {
	return &history{began: time.Now(), asked: map[string]map[string]time.Time{}, lost: map[string]map[string]time.Time{}}
}

// must notes an error that only a fault of the simulation can cause.
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

// violate is violated under the lock.
func (h *history) violate(format string, args ...any) {
	h.broken = append(h.broken, fmt.Sprintf("%8s  ", time.Since(h.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// note adds a line to the trace.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%8s  ", time.Since(h.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// writes is how many there have been.
func (h *history) writes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

func (h *history) refused(node string, err error) {
	h.violated("Node %s cannot register: %v", node, err)
}

// stored judges one stored version of an object.
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
	if w.Before == nil || w.After == nil {
		return
	}
	h.keepsForeign(w)
	switch w.GVR.Resource {
	case "machines":
		h.asks(w.After)
		h.loses(w)
	case "nodes":
		h.keepsAlways(w)
		h.bringsNothingBack(w)
	}
}

// keepsForeign holds everybody but the foreign writer to leave what is its own.
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

// asks remembers the Always taints that a Machine asks for.
func (h *history) asks(object *unstructured.Unstructured) {
	now := map[string]time.Time{}
	if object.GetDeletionTimestamp() == nil {
		for _, t := range machineTaints(object) {
			if t.Propagation != clusterv1.MachineTaintPropagationAlways {
				continue
			}
			key := taint.Format(taint.ForNode(t))
			now[key] = time.Now()
			if since, ok := h.asked[object.GetName()][key]; ok {
				now[key] = since
			}
		}
	}
	h.asked[object.GetName()] = now
}

// keepsAlways holds each write of a Node that Heirloom has admitted to keep the taints that the Machine asks for.
func (h *history) keepsAlways(w apiserver.Write) {
	if w.Admission != "reached" || w.After.GetDeletionTimestamp() != nil {
		return
	}
	after := taintsOf(w.After)
	for _, t := range taintsOf(w.Before) {
		since, asked := h.asked[w.After.GetName()][taint.Format(t)]
		if asked && time.Since(since) > h.takes() && !slices.Contains(after, t) {
			h.violate("%s removes the Always taint %s from Node %s, and admission lets it", w.User, taint.Format(t), w.After.GetName())
		}
	}
}

// bringsNothingBack holds each write of a Node to bring no key that its Machine has lost a while ago.
func (h *history) bringsNothingBack(w apiserver.Write) {
	if w.User == foreignUser {
		return
	}
	lost := h.lost[w.After.GetName()]
	before, after := inherited(w.Before), inherited(w.After)
	for key := range after {
		since, gone := lost[key]
		if _, had := before[key]; !had && gone && time.Since(since) > h.takes() {
			h.violate("%s brings %s back to Node %s, %s after its Machine has lost it", w.User, key, w.After.GetName(), time.Since(since))
		}
	}
}

// loses remembers which of the keys that operators declare a Machine has lost, and since when.
func (h *history) loses(w apiserver.Write) {
	name, after := w.After.GetName(), inherited(w.After)
	if h.lost[name] == nil {
		h.lost[name] = map[string]time.Time{}
	}
	for key := range inherited(w.Before) {
		if _, has := after[key]; !has {
			h.lost[name][key] = time.Now()
		}
	}
	for key := range after {
		delete(h.lost[name], key)
	}
}

// inherited are the keys of an object that operators declare.
func inherited(object *unstructured.Unstructured) map[string]bool {
	found := map[string]bool{}
	for _, key := range labels {
		if _, ok := object.GetLabels()[key]; ok {
			found["label "+key] = true
		}
	}
	for _, key := range annotations {
		if _, ok := object.GetAnnotations()[key]; ok {
			found["annotation "+key] = true
		}
	}
	for key := range taintMap(object) {
		found["taint "+key] = true
	}
	return found
}

// decoded returns an object as its type; empty if it cannot be.
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

// differences tells in short what a write has changed of labels, annotations and taints.
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

// taintMap has the taints of a Node or a Machine.
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
