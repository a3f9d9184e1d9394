// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// ClusterAnnotation names the Cluster, as <namespace>/<name>, that parameters are about.
	ClusterAnnotation = "heirloom.dev/cluster"

	// many is up to how many Machines all have parameters: twice as many as Kubernetes supports Nodes in a cluster. Beyond it,
	// Machines that already have Nodes are left out: if such a Node registers again, the loop applies what it inherits.
	many = 10_000
	// maxValues is how many bytes of values the API server accepts in a ConfigMap.
	maxValues = 1 << 20
	// maxObject is less than etcd's limit of 1.5 MiB, because there is more to an object than what is counted.
	maxObject = 1_400_000
	// perKey is the size of a data key beyond itself and its value: managedFields name it once more.
	perKey = 24
)

// NoRoomError says for how many Machines the parameters had no room. The loop applies what their Nodes inherit.
type NoRoomError struct{ Machines int }

// Error implements error.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the parameters of the admission policy have no room for %d Machines", e.Machines)
}

// Parameters returns the parameters of a Cluster: what the Node of each of its Machines gets at its registration. Their size
// decides the number of parts; bound is how many parts the API server uses now, 1 if there are none yet.
//
// machines are all Machines of the Cluster, including skipped ones, because their Nodes must not be taken for others'. The error
// is a NoRoomError, and the parameters are valid nevertheless.
func Parameters(cluster types.NamespacedName, machines []inherit.Machine, rules inherit.Policy, bound int) ([]*corev1.ConfigMap, error) {
	entries := entriesOf(machines, rules)
	return inParts(partsFor(entries, bound), cluster, entries)
}

// inParts returns the parameters in that many parts.
func inParts(parts int, cluster types.NamespacedName, entries []entry) ([]*corev1.ConfigMap, error) {
	collected := make([]*parameters, parts)
	for i := range collected {
		collected[i] = newParameters()
		if parts > 1 {
			collected[i].set(partKey, fmt.Sprintf("%d/%d", i, parts))
		}
	}
	leftOut := 0
	for i, places := range place(entries, parts) {
		has := true
		for _, part := range places {
			if !collected[part].add(entries[i].machine, entries[i].content) {
				// It stays a candidate if there is room for that at least, so that its Node is not taken for another's.
				collected[part].add(entries[i].machine, "")
				has = false
			}
		}
		if !has {
			leftOut++
		}
	}
	objects := make([]*corev1.ConfigMap, 0, parts)
	for i, p := range collected {
		objects = append(objects, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: Namespace, Name: partName(i, parts), Labels: partLabels(parts),
				Annotations: map[string]string{ClusterAnnotation: cluster.String()},
			},
			Data: p.data,
		})
	}
	if leftOut > 0 {
		return objects, &NoRoomError{Machines: leftOut}
	}
	return objects, nil
}

// entry is a Machine and what its Node gets, which may be nothing.
type entry struct {
	machine *clusterv1.Machine
	content string
}

func entriesOf(machines []inherit.Machine, rules inherit.Policy) []entry {
	var entries []entry
	share := strings.Repeat(" ", kubeletsShare)
	// The numbers of Machines do not depend on the order in which they were listed.
	sorted := slices.SortedStableFunc(slices.Values(machines), func(x, y inherit.Machine) int {
		a, b := x.Actual, y.Actual
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Spec.ProviderID, b.Spec.ProviderID))
	})
	for _, m := range sorted {
		// As long as its Node exists, no kubelet can create another one that is this Machine.
		if !findable(m.Actual) || len(machines) > many && m.Actual.Status.NodeRef.Name != "" {
			continue
		}
		content := ""
		if _, skipped := rules.SkipsNode(m.Actual, &clusterv1.Cluster{}); !skipped { // a Cluster that is skipped gets no parameters
			content = contentOf(m, rules, share)
		}
		entries = append(entries, entry{machine: m.Actual, content: content})
	}
	return entries
}

// parameters are the data of a ConfigMap while they are collected.
type parameters struct {
	data   map[string]string
	ending *regexp.Regexp
	// contents are the numbers of the contents so far. The empty content has none.
	contents map[string]string
	machines int
	// values and object are the sizes so far, as the API server and etcd count them.
	values, object int
}

func newParameters() *parameters {
	p := &parameters{data: map[string]string{}, ending: regexp.MustCompile(ending), contents: map[string]string{"": ""}}
	p.set(formatKey, format)
	return p
}

// add adds a Machine with its content, which may be empty, or reports that there is no room.
func (p *parameters) add(m *clusterv1.Machine, content string) bool {
	number, known := p.contents[content]
	if !known {
		number = strconv.Itoa(len(p.contents))
	}
	lines, indexes := machineLines(m, number), indexesOf(m, p.ending)
	more, keys := len(lines), 1+len(indexes)
	if !known {
		more, keys = more+len(content), keys+1
	}
	// Numbers and keys are short; that they are a little shorter than counted here does not matter.
	const longest = 8
	more += longest * len(indexes)
	if p.values+more > maxValues || p.object+more+keys*(2*longest+perKey) > maxObject {
		return false
	}
	if !known {
		p.contents[content] = number
		p.set(contentPrefix+number, content)
	}
	machine := strconv.Itoa(p.machines)
	p.machines++
	p.set(machinePrefix+machine, lines)
	for _, index := range indexes {
		if list, ok := p.data[index]; ok {
			p.set(index, list+","+machine)
		} else {
			p.set(index, machine)
		}
	}
	return true
}

func (p *parameters) set(key, value string) {
	before, ok := p.data[key]
	if !ok {
		p.object += 2*len(key) + perKey
	}
	p.values += len(value) - len(before)
	p.object += len(value) - len(before)
	p.data[key] = value
}
