// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// content has the declared or inherited entries of an object, each as people write it: key=value for labels and annotations,
// key=value:effect for taints.
type content struct {
	labels, annotations, taints []string
}

func contentOf(labels, annotations map[string]string, taints []string) content {
	return content{labels: items(labels), annotations: items(annotations), taints: slices.Sorted(slices.Values(taints))}
}

func items(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+"="+m[key])
	}
	return list
}

func ofTemplate(t clusterv1.MachineTemplateSpec) content {
	return contentOf(t.Labels, t.Annotations, machineTaints(t.Spec.Taints))
}

func ofMachine(m *clusterv1.Machine) content {
	return contentOf(m.Labels, m.Annotations, machineTaints(m.Spec.Taints))
}

func ofNode(node *corev1.Node) content {
	taints := make([]string, 0, len(node.Spec.Taints))
	for _, t := range node.Spec.Taints {
		taints = append(taints, taint.Format(t))
	}
	return contentOf(node.Labels, node.Annotations, taints)
}

// machineTaints returns a Machine's taints, each with its propagation.
func machineTaints(taints []clusterv1.MachineTaint) []string {
	list := make([]string, 0, len(taints))
	for _, t := range taints {
		list = append(list, taint.Format(taint.ForNode(t))+" "+string(t.Propagation))
	}
	return list
}

// without returns the entries of c that other does not have.
func (c content) without(other content) content {
	return content{
		labels:      without(c.labels, other.labels),
		annotations: without(c.annotations, other.annotations),
		taints:      without(c.taints, other.taints),
	}
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(item string) bool { return slices.Contains(other, item) })
}

// under keeps labels and annotations whose keys have one of these prefixes, and every taint.
func (c content) under(prefixes ...string) content {
	keep := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(item string) bool {
			return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(item, prefix+"/") })
		})
	}
	return content{labels: keep(c.labels), annotations: keep(c.annotations), taints: c.taints}
}

// list returns all entries, each with its type.
func (c content) list() []string {
	var list []string
	for _, part := range c.parts() {
		for _, item := range part.items {
			list = append(list, part.name+" "+item)
		}
	}
	return list
}

// missing returns a problem for each entry of wanted that c does not have.
func (c content) missing(wanted content) []string {
	return prefixed("missing: ", wanted.without(c).list())
}

// unwanted returns a problem for each entry of other that c has.
func (c content) unwanted(other content) []string {
	return prefixed("still there: ", other.without(other.without(c)).list())
}

func prefixed(prefix string, list []string) []string {
	result := make([]string, 0, len(list))
	for _, item := range list {
		result = append(result, prefix+item)
	}
	return result
}

type part struct {
	name  string
	items []string
}

func (c content) parts() []part {
	return []part{{"label", c.labels}, {"annotation", c.annotations}, {"taint", c.taints}}
}

// show writes the content as a small table.
func (c content) show() {
	for _, part := range c.parts() {
		for _, item := range part.items {
			fmt.Printf("    %-12s%s\n", part.name, item)
		}
	}
}
