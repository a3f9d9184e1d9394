// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	// format is the version of the encoding, which the package comment describes.
	format = "2"
	// guardLine is the first line of a content with the guard.
	guardLine = "guard"
	// separators separate Machines and their fields.
	separators = "\n\t"

	// mostLines and mostContents limit the bytes of the lines of all Machines and of all contents: see the package comment. mostContent
	// limits the bytes of one content: a Node has the keys of labels twice, and etcd takes 1.5 MiB.
	mostLines, mostContents, mostContent = 100_000, 900_000, 512 << 10
	// kubeletsShare is the part of the room for annotations, in bytes, that is left to the kubelet and to others.
	kubeletsShare = 32 << 10
)

// NoRoomError has the number of Machines for which the parameters had no room. The loop applies the inherited entries of their Nodes.
type NoRoomError struct{ Machines int }

// Error implements error.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the parameters of the admission policy have no room for %d Machines", e.Machines)
}

// encode returns the data of the parameters. The error is a NoRoomError if it left Machines out; the data is valid nevertheless. A tenant may
// declare any number of Machines, so encode stops when ctx is done.
func encode(ctx context.Context, machines []inherit.Machine, rules inherit.Policy) (map[string]any, error) {
	data, numbers, share := map[string]any{"format": format}, map[string]string{"": ""}, strings.Repeat(" ", kubeletsShare)
	var lines []string
	known, foreign := sets.Set[string]{}, sets.Set[string]{}
	text, contents, leftOut := 0, 0, 0
	byName := func(a, b inherit.Machine) int { return cmp.Compare(a.Actual.Name, b.Actual.Name) }
	for _, m := range slices.SortedFunc(slices.Values(machines), byName) { // so that numbers do not depend on the order of the list
		if ctx.Err() != nil {
			return nil, fmt.Errorf("computing the parameters of the admission policy: %w", ctx.Err())
		}
		names := namesOf(m.Actual)
		if m.Actual.Status.NodeRef.Name != "" || strings.ContainsAny(m.Actual.Spec.ProviderID, separators) {
			maps.Copy(foreign, names)
			continue
		}
		if !Findable(m.Actual) {
			continue
		}
		if text+len(line("", m.Actual.Spec.ProviderID, names)) > mostLines { // before the content is computed
			maps.Copy(foreign, names)
			leftOut++
			continue
		}
		content, more := contentOf(m, rules, share), 0
		number, there := numbers[content]
		if !there {
			number, more = strconv.Itoa(len(numbers)), len(content)
		}
		one := line(number, m.Actual.Spec.ProviderID, names)
		if text+len(one) > mostLines || contents+more > mostContents || more > mostContent {
			maps.Copy(foreign, names)
			leftOut++
			continue
		}
		if !there {
			numbers[content], data["c."+number] = number, content
		}
		maps.Copy(known, names)
		lines, text, contents = append(lines, one), text+len(one), contents+more
	}
	if shared := known.Intersection(foreign); len(shared) > 0 {
		lines = append(lines, line("", "", shared))
	}
	data["machines"] = strings.Join(lines, "\n")
	if leftOut > 0 {
		return data, &NoRoomError{Machines: leftOut}
	}
	return data, nil
}

// Findable reports whether a Node can match this Machine yet: by a providerID, a name or an address.
func Findable(m *clusterv1.Machine) bool {
	return m.Spec.ProviderID != "" || len(inherit.MachineNames(m)) > 0
}

// namesOf returns the names and addresses of a Machine and the name of its Node, except names that contain a separator.
func namesOf(m *clusterv1.Machine) sets.Set[string] {
	names := sets.New(inherit.MachineNames(m)...)
	if m.Status.NodeRef.Name != "" {
		names.Insert(m.Status.NodeRef.Name)
	}
	for name := range names {
		if strings.ContainsAny(name, separators) {
			names.Delete(name)
		}
	}
	return names
}

// line encodes the number of a Machine's content, and the identifiers by which a Node finds the Machine.
func line(content, providerID string, names sets.Set[string]) string {
	return strings.Join(append([]string{content, providerID}, sets.List(names)...), "\t")
}

// contentOf encodes the entries that a Node gets from its Machine at its registration: nothing if the Machine is skipped. Heirloom's
// annotations list the entries that the Machine does not have yet (docs/design.md §5). share is as long as the kubelet's part of the room
// for annotations. If the Machine's annotations do not fit next to it, they are left out, because an API server would refuse the Node.
func contentOf(m inherit.Machine, rules inherit.Policy, share string) string {
	if _, skipped := rules.SkipsNode(m.Actual, &clusterv1.Cluster{}); skipped { // a skipped Cluster gets no parameters
		return ""
	}
	const kubelets = "" // no annotation has this key
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubelets: share}}}
	// The reconcilers of the Machine and of its Node report the entries that are left out.
	from, registers := inherit.SourceOfMachine(m.Effective).AheadOf(m.Actual), inherit.Turn{Registering: true}
	state := rules.PlanNode(inherit.ReadNode(node, time.Time{}), from, registers).Result
	delete(state.Annotations, kubelets)
	guard := ""
	if _, guarded := state.Annotations[inherit.UninitializedAnnotation]; guarded {
		guard = guardLine
		state.Taints = taint.Remove(state.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
		delete(state.Annotations, inherit.UninitializedAnnotation)
	}
	var labels, taints []string
	for _, key := range slices.Sorted(maps.Keys(state.Labels)) {
		labels = append(labels, key+"="+state.Labels[key])
	}
	for _, t := range state.Taints { // in their order on the Node; always with an equals sign, which the policy needs
		taints = append(taints, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	lines := []string{guard, strings.Join(labels, ","), strings.Join(taints, ",")}
	escape := strings.NewReplacer("%", "%25", "\n", "%0A")
	for _, key := range slices.Sorted(maps.Keys(state.Annotations)) {
		lines = append(lines, key+"="+escape.Replace(state.Annotations[key]))
	}
	return strings.Join(lines, "\n")
}
