// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// PartsLabel on a ConfigMap says into how many parts the parameters are divided. The binding selects by it, so that an
	// API server looks at all parts of one division, and of no other.
	PartsLabel = "heirloom.dev/parts"

	// maxParts bounds how often the policy is evaluated for a Node: once for each part.
	maxParts = 16
	// partSize is how large a part may be on average before there are twice as many. A change of one Machine writes one part.
	partSize = 64 << 10
	// perMachine is the size of a Machine's parameters beyond its lines and its content: keys and indexes.
	perMachine = 64
)

// partsFor returns into how many parts to divide the parameters. A new number rewrites all of them, so it falls only once that
// is likely to last.
func partsFor(entries []entry, now int) int {
	parts, size := 1, sizeOf(entries)
	for parts < min(maxParts, len(entries)) && size > parts*partSize {
		parts *= 2
	}
	if parts < now && size > now*partSize/4 {
		return now
	}
	return parts
}

// sizeOf estimates how large the parameters are, whatever the number of parts.
func sizeOf(entries []entry) int {
	size, contents := 0, map[string]bool{}
	for _, e := range entries {
		size += perMachine + len(machineLines(e.machine, ""))
		if !contents[e.content] {
			contents[e.content] = true
			size += len(e.content)
		}
	}
	return size
}

// place returns for each entry the parts that it is in: one, which its name decides, so that it stays there.
//
// Machines that could be mistaken for one another are together, because an expression sees one part alone: they have a
// providerID, the name of a Node, a name or an address in common. A Machine that has a Node but no providerID is in all parts,
// with its whole group: it takes precedence over a Machine with the Node's providerID, which may be in any part.
func place(entries []entry, parts int) [][]int {
	groups := groupsOf(entries)
	everywhere := map[int]bool{}
	for i, e := range entries {
		if e.machine.Status.NodeRef.Name != "" && e.machine.Spec.ProviderID == "" {
			everywhere[groups[i]] = true
		}
	}
	all := make([]int, parts)
	for i := range all {
		all[i] = i
	}
	places := make([][]int, len(entries))
	for i := range entries {
		if everywhere[groups[i]] {
			places[i] = all
			continue
		}
		first := entries[groups[i]].machine
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(first.Namespace + "/" + first.Name)) // a hash takes everything
		part := int(hash.Sum32() % uint32(parts))                     //nolint:gosec // there are few
		places[i] = all[part : part+1]
	}
	return places
}

// groupsOf returns for each entry the number of the first one in its group. Two entries are in one group if they share
// something by which a Node is found, or both share it with a third.
func groupsOf(entries []entry) []int {
	groups, known := make([]int, len(entries)), map[string]int{}
	root := func(i int) int {
		for groups[i] != i {
			groups[i] = groups[groups[i]]
			i = groups[i]
		}
		return i
	}
	for i, e := range entries {
		groups[i] = i
		for _, key := range keysOf(e.machine) {
			other, there := known[key]
			if !there {
				known[key] = i
				continue
			}
			a, b := root(i), root(other)
			groups[max(a, b)] = min(a, b)
		}
	}
	for i := range groups {
		groups[i] = root(i)
	}
	return groups
}

// partName returns the name of a part's ConfigMap.
func partName(part, parts int) string {
	if parts == 1 {
		return Name
	}
	return fmt.Sprintf("%s-%d-of-%d", Name, part+1, parts)
}

func partLabels(parts int) map[string]string {
	all := maps.Clone(labels())
	all[PartsLabel] = strconv.Itoa(parts)
	return all
}

// changedAt returns when Heirloom last changed the binding, by the clock of its API server; zero if unknown.
func changedAt(binding *unstructured.Unstructured) time.Time {
	var last time.Time
	for _, entry := range binding.GetManagedFields() {
		if entry.Manager == managedfields.Manager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// boundParts returns how many parts a binding selects; 1 where there is none or it does not say.
func boundParts(binding *unstructured.Unstructured) int {
	if binding == nil {
		return 1
	}
	selected, _, _ := unstructured.NestedString(binding.Object, "spec", "paramRef", "selector", "matchLabels", PartsLabel)
	parts, err := strconv.Atoi(selected)
	if err != nil || parts < 1 || parts > maxParts {
		return 1
	}
	return parts
}
