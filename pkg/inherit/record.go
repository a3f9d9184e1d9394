// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// The record of a Node holds everything that its kubelet may not change: entries that it may not remove, and the state of the Node
// (docs/design.md §2).
const (
	// RecordAnnotation has the record: restricted labels and Always taints that came from the Machine, then the state.
	RecordAnnotation = "heirloom.dev/record-from-machine"
	// RecordLabel has a digest of RecordAnnotation. NodeRestriction lets no kubelet set, change or remove it. So Heirloom has written a
	// Node with the label since the Node registered.
	RecordLabel = taint.OwnDomain + "/record"
)

// Record is the record of a Node.
type Record struct {
	Labels []string       // keys of restricted labels from the Machine
	Taints []corev1.Taint // Always taints from the Machine
	// Softened is the time of the turn of a Node that waits for its Pods to leave, otherwise zero.
	Softened time.Time
	// Evicted is the time at which the Node got taints that evict Pods, while the roll-out in its Cluster is not over, otherwise zero.
	Evicted time.Time
	// Gates are the closed start-up gates, as "<key>:<effect>". No other gate opens.
	Gates []string
}

// The state in a record, and the signature of a record without a label.
const softenedPart, evictedPart, gatesPart, signedPart = "softened=", "evicted=", "gates=", ";signed="

// text returns the record as it is stored: "<keys>;<taints>" and then the state, or "".
func (r Record) text() string {
	parts := []string{taint.Join(slices.Clone(r.Labels)), taint.FormatList(r.Taints)}
	if !r.Softened.IsZero() {
		parts = append(parts, softenedPart+r.Softened.UTC().Format(time.RFC3339))
	}
	if !r.Evicted.IsZero() {
		parts = append(parts, evictedPart+r.Evicted.UTC().Format(time.RFC3339))
	}
	if len(r.Gates) > 0 {
		parts = append(parts, gatesPart+taint.Join(slices.Clone(r.Gates)))
	}
	if text := strings.Join(parts, ";"); text != ";" {
		return text
	}
	return ""
}

// parseRecord is the inverse of text.
func parseRecord(text string) (r Record) {
	keys, rest, _ := strings.Cut(text, ";")
	taints, state, _ := strings.Cut(rest, ";") // by position: a taint's key may be "gates"
	r.Labels = taint.Split(keys)
	r.Taints, _ = taint.ParseList(taints)
	for part := range strings.SplitSeq(state, ";") {
		if since, ok := strings.CutPrefix(part, softenedPart); ok {
			r.Softened, _ = time.Parse(time.RFC3339, since) // Heirloom wrote it
		} else if since, ok := strings.CutPrefix(part, evictedPart); ok {
			r.Evicted, _ = time.Parse(time.RFC3339, since)
		} else if gates, ok := strings.CutPrefix(part, gatesPart); ok {
			r.Gates = taint.Split(gates)
		}
	}
	return r
}

// RecordOf returns the record of a Node. It is empty if the Node has none, or if its kubelet has changed it.
func RecordOf(node NodeState) Record { return parseRecord(ValidRecord(node)) }

// ValidRecord returns the text of a Node's record, or "" if the Node's label does not match it.
func ValidRecord(node NodeState) string {
	if text := node.Annotations[RecordAnnotation]; node.Labels[RecordLabel] == digest(text) {
		return text
	}
	return ""
}

// WaitsForPods reports whether a Node has had its turn to get taints that evict Pods, and waits until its Pods have left.
func WaitsForPods(node *corev1.Node) bool {
	return strings.Contains(node.Annotations[RecordAnnotation], softenedPart) && !RecordOf(OfNode(node)).Softened.IsZero()
}

// Turn returns the time of the Node's turn in the roll-out in its Cluster, or zero.
func (r Record) Turn() time.Time {
	if !r.Softened.IsZero() {
		return r.Softened
	}
	return r.Evicted
}

// TurnOf returns the time of a Node's turn in the roll-out in its Cluster, or zero.
func TurnOf(node *corev1.Node) time.Time {
	if record := node.Annotations[RecordAnnotation]; !strings.Contains(record, softenedPart) && !strings.Contains(record, evictedPart) {
		return time.Time{}
	}
	return RecordOf(OfNode(node)).Turn()
}

// Recorded returns the Node with this record in place of its own.
func (r Record) Recorded(node NodeState) NodeState {
	text := r.text()
	node.Labels, node.Annotations = mergeMaps(node.Labels, nil), mergeMaps(node.Annotations, nil)
	setOrDelete(node.Annotations, RecordAnnotation, text)
	node.Labels[RecordLabel] = digest(text)
	return node
}

// signed returns the text of the record of a Node that its kubelet creates: NodeRestriction would refuse the label. A kubelet may write the
// text, so it has an HMAC, whose key is a UID that no kubelet knows: of the Machine's owner, so that Machines of a set share the text.
func (r Record) signed(by NodeSource) string {
	text := r.text()
	if text == "" || by.Object == nil {
		return ""
	}
	key := by.Object.GetUID()
	if owner := metav1.GetControllerOfNoCopy(by.Object); owner != nil {
		key = owner.UID
	}
	sum := hmac.New(sha256.New, []byte(key))
	sum.Write([]byte(text))
	return text + signedPart + hex.EncodeToString(sum.Sum(nil))
}

// registered returns the record of a Node that only its kubelet has written since Heirloom signed the record.
func registered(node NodeState, by NodeSource) Record {
	text := node.Annotations[RecordAnnotation]
	if r := parseRecord(text); hmac.Equal([]byte(text), []byte(r.signed(by))) {
		return r
	}
	return Record{}
}

// digest returns a hash of a record that fits into the value of a label. A forger needs a second text with the digest that the label
// already has.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// marks reports whether a label is in Heirloom's own domain.
func marks(key string) bool { return domain(key) == taint.OwnDomain }

// forged reports whether the Node has the record's label with the value of its Machine. Cluster API propagates every label of a Machine in
// this domain to the Node. Such a record is not believed, and Heirloom does not fight with Cluster API over the label.
func forged(node Node, from NodeSource) bool {
	value, labeled := from.Labels[RecordLabel]
	return labeled && node.Labels[RecordLabel] == value
}

// withRecord returns the state with a record of the entries that the Node has from its Machine, and of the state of the Node. Admission
// leaves a record that a kubelet has changed to the loop, which may remember the last valid record.
func (w *nodeWrite) withRecord(state NodeState) NodeState {
	valid := func(node NodeState) bool {
		return w.stored.Labels[RecordLabel] == digest(node.Annotations[RecordAnnotation])
	}
	changed := w.turn.Stored != nil && w.stored.recorded && !valid(w.stored.NodeState) && !valid(*w.turn.Stored)
	if changed || forged(w.stored, w.from) {
		return state
	}
	r := Record{Taints: always(w.declared)}
	for key, value := range w.restricted {
		if now, there := state.Labels[key]; there && now == value {
			r.Labels = append(r.Labels, key)
		}
	}
	if w.waitsForPods() {
		if r.Softened = w.node.Record.Softened; r.Softened.IsZero() {
			r.Softened = w.node.now
		}
	}
	r.Evicted = w.evicted()
	for _, gate := range w.closed {
		r.Gates = append(r.Gates, taint.IDOf(gate.Taint).String())
	}
	return r.Recorded(state)
}

// evicted returns the time at which the Node got taints that evict Pods, until the roll-out in its Cluster is over.
func (w *nodeWrite) evicted() time.Time {
	switch {
	case w.turn.RollOutOver:
		return time.Time{}
	case w.turn.Recorded && len(w.evicting) > len(w.held):
		return w.node.now
	}
	return w.node.Record.Evicted
}
