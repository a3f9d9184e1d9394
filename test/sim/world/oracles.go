// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// Each oracle checks one promise in each stored version of each object, and in each answer of a webhook.

// answered checks the answer of a webhook to a write by any user.
func (h *history) answered(replica string, asked uint64, body, answer []byte) error {
	var question, reply admissionv1.AdmissionReview
	if err := errors.Join(json.Unmarshal(body, &question), json.Unmarshal(answer, &reply)); err != nil {
		return err
	}
	if len(reply.Response.Patch) == 0 || len(question.Request.Object.Raw) == 0 {
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
	w := apiserver.Write{User: heirloomUser + "'s webhook in " + replica, Before: &unstructured.Unstructured{}, After: &unstructured.Unstructured{}}
	if err := errors.Join(w.Before.UnmarshalJSON(question.Request.Object.Raw), w.After.UnmarshalJSON(patched)); err != nil {
		return err
	}
	old := &unstructured.Unstructured{}
	if err := old.UnmarshalJSON(question.Request.OldObject.Raw); question.Request.Operation == admissionv1.Update && err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.staysOut(w, w.Before, w.After)
	created := question.Request.Operation == admissionv1.Create
	switch name, set := w.After.GetName(), setOf(w.After); w.After.GetKind() {
	case "Node":
		if h.recordsWhatItBrings(w); !created {
			h.initializesOnce(w, old)
			h.bringsNothingBack(w, asked, h.ownersOf(name)...)
		}
	case "Machine":
		if h.ownsWhatItBrings(w); !created {
			h.bringsNothingBack(w, asked, set)
		}
	case "FakeMachine":
		if h.ownsWhatItBrings(w); !created {
			h.bringsNothingBack(w, asked, name, set)
		}
	}
	return nil
}

// staysOut checks that Heirloom changes nothing in a Cluster that it only observes, or that is paused.
func (h *history) staysOut(w apiserver.Write, before, after *unstructured.Unstructured) {
	if !strings.HasPrefix(w.User, heirloomUser) {
		return
	}
	set := setOf(after)
	if after.GetKind() == "Node" {
		set = h.members[after.GetName()]
	}
	if set == "" {
		return
	}
	if may, known := h.written[clusterOf(set)]; known && !may.yes && time.Since(may.at) > h.takes("clusters") {
		h.violate("%s changes %s %s of a Cluster that is paused or only observed%s", w.User, after.GetKind(), after.GetName(),
			differences(apiserver.Write{Before: before, After: after}))
	}
}

// keepsForeign checks that only the foreign writer changes its own entries.
func (h *history) keepsForeign(w apiserver.Write) {
	if w.User == foreignUser {
		return
	}
	if before, after := foreignOf(w.Before), foreignOf(w.After); !slices.Equal(before, after) {
		h.violate("%s changes what is foreign on %s %s: %v became %v", w.User, w.GVR.Resource, w.After.GetName(), before, after)
	}
}

// keepsOrphans checks that Heirloom takes nothing from an object whose owner is missing: at once what the owner declared last, and a request
// later nothing at all.
func (h *history) keepsOrphans(w apiserver.Write) {
	owner := h.ownerOf(w.Before)
	if !strings.HasPrefix(w.User, heirloomUser) || owner == "" || h.alive[owner] {
		return
	}
	decidedBefore := time.Since(h.missing[owner]) <= h.takes(w.GVR.Resource)
	before, after := inherited(w.Before), inherited(w.After)
	if w.GVR.Resource == "machinesets" {
		before, after = inherited(templateOf(w.Before)), inherited(templateOf(w.After))
	}
	for entry := range before {
		if !after[entry] && (!decidedBefore || h.takes() == calm && h.declaredLast(w, entry)) {
			h.violate("%s takes %s from %s %s, whose owner is missing", w.User, entry, w.GVR.Resource, w.After.GetName())
		}
	}
}

// declaredLast reports whether the last version of an object's owner declares an entry.
func (h *history) declaredLast(w apiserver.Write, entry string) bool {
	set := setOf(w.Before)
	if w.GVR.Resource == "nodes" {
		set = h.members[w.Before.GetName()]
	}
	by := map[string]string{"MachineDeployment": "machinesets", "ModernControlPlane": "moderncontrolplanes", "MachinePool": "machinepools"}[kindOf(set)]
	if w.GVR.Resource == "machinesets" {
		by = "machinedeployments"
	}
	return w.GVR.Resource != "fakemachines" && w.GVR.Resource != "fakeconfigs" && h.declares[set][by][entry]
}

// keepsAlways checks that a write of a Node that Heirloom has admitted keeps the Always taints that its Machine and set declare.
func (h *history) keepsAlways(w apiserver.Write) {
	name := w.After.GetName()
	set := h.members[name]
	if w.Admission != "reached" || w.After.GetDeletionTimestamp() != nil || set == "" {
		return
	}
	takes := h.takes("machines", "machinepools", "nodes", "clusters")
	if may := h.written[clusterOf(set)]; !may.yes || time.Since(may.at) <= takes {
		return
	}
	after := taintsOf(w.After)
	for _, t := range taintsOf(w.Before) {
		asked := !slices.ContainsFunc(h.declaringAlways(name), func(owner string) bool {
			since, asks := h.asked[owner][taint.Format(t)]
			return !asks || time.Since(since) <= takes
		})
		if asked && !slices.ContainsFunc(after, func(a corev1.Taint) bool { return a.MatchTaint(&t) && a.Value == t.Value }) {
			h.violate("%s removes the Always taint %s from Node %s, and admission lets it", w.User, taint.Format(t), name)
		}
	}
}

// bringsNothingBack checks that a write of a Node or Machine by Heirloom, or its answer, brings no entry that the owners lost a while ago or,
// as long as no fault hinders the requests of the writer, before the version that the writer has seen.
func (h *history) bringsNothingBack(w apiserver.Write, seen uint64, owners ...string) {
	if !strings.HasPrefix(w.User, heirloomUser) && w.GVR.Resource == "machines" || w.User == foreignUser || w.User == neighbourUser {
		return
	}
	before, takes := inherited(w.Before), h.takes()
	cached := h.takes("machinesets", "moderncontrolplanes") // decides for a child that is older than the loss
	for entry := range inherited(w.After) {
		has := slices.ContainsFunc(owners, func(owner string) bool {
			lost, ok := h.lost[owner][entry]
			return !ok || time.Since(lost.at) <= takes && (takes > calm || lost.version >= seen) ||
				seen > 0 && lost.version >= seen && time.Since(lost.at) <= cached
		})
		if !before[entry] && !has {
			h.violate("%s brings %s back to %s %s, although %v have lost it a while ago", w.User, entry, w.After.GetKind(), w.After.GetName(), owners)
		}
	}
}

// recordsWhatItBrings checks that the entries that Heirloom brings to a Node are in the record of the same write.
func (h *history) recordsWhatItBrings(w apiserver.Write) {
	if !strings.HasPrefix(w.User, heirloomUser) {
		return
	}
	before := inherited(w.Before)
	for entry := range inherited(w.After) {
		if !before[entry] && !recorded(w.After, entry) && !isStart(entry) {
			h.violate("%s brings %s to Node %s, and does not record it", w.User, entry, w.After.GetName())
		}
	}
}

// ownsWhatItBrings checks that the labels and annotations that Heirloom brings to a child are in Heirloom's own entry of managedFields.
func (h *history) ownsWhatItBrings(w apiserver.Write) {
	if !strings.HasPrefix(w.User, heirloomUser) {
		return
	}
	for _, entry := range sets.List(sets.KeySet(inherited(w.After)).Difference(sets.KeySet(inherited(w.Before)))) {
		if key := keyOf(entry); !strings.HasPrefix(entry, "taint ") && !owns(w.After, heirloomUser, key) {
			h.violate("%s brings %s to %s %s, and does not own it", w.User, entry, w.After.GetKind(), w.After.GetName())
		}
	}
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

// takesTurns checks that Nodes get taints that evict Pods in one Cluster at a time.
func (h *history) takesTurns(w apiserver.Write) {
	name := w.After.GetName()
	if _, valid := gatesIn(w.After); !valid && !h.turns[name].yes {
		return
	}
	now, before := !inherit.TurnOf(decoded[corev1.Node](w.After)).IsZero(), h.turns[name].yes
	if now == before {
		return
	}
	h.turns[name] = since{now, time.Now()}
	own := clusterOf(h.members[name])
	if !now || !h.waves || !strings.HasPrefix(w.User, heirloomUser) {
		return
	}
	for other, turn := range h.turns {
		of := clusterOf(h.members[other])
		if takes := h.takes("nodes", "machines", "clusters"); of != own && turn.yes && time.Since(turn.at) > takes && h.written[of].yes && time.Since(h.written[of].at) > takes {
			h.violate("%s lets Node %s have its turn, although the roll-out in %s is not over", w.User, name, of)
		}
	}
}
