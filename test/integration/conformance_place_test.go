// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// place holds the paths of the fields in which an object has content, as field names; nil without the field. The program has
// paths of its own; the test's paths come from the CRDs.
type place struct {
	metadata, taints, gates, minReady []string
	// timeouts is the path of the object with the three timeouts; empty and not nil if they are at the top.
	timeouts []string
	// durations means that timeouts are durations, for example "10s", with their names in v1beta1.
	durations bool
	// node means that the taints are a Node's, without propagation.
	node bool
}

// below returns the same place inside of the object at path.
func (p place) below(path ...string) place {
	for _, at := range []*[]string{&p.metadata, &p.taints, &p.gates, &p.minReady, &p.timeouts} {
		if *at != nil {
			*at = slices.Concat(path, *at)
		}
	}
	return p
}

// holds returns the part of c for which the place has fields.
func (p place) holds(c content) content {
	held := content{taintColumn: {}, fieldColumn: {}}
	if p.metadata != nil {
		held[labelColumn], held[annotationColumn] = c[labelColumn], c[annotationColumn]
	}
	if p.taints != nil {
		for id, value := range c[taintColumn] {
			if p.node {
				value, _, _ = strings.Cut(value, "|")
				value += "|"
			}
			held[taintColumn][id] = value
		}
	}
	for name, value := range c[fieldColumn] {
		if at, _ := p.field(name); at != nil {
			held[fieldColumn][name] = value
		}
	}
	return held.and()
}

// field returns the path of an in-place field, or nil, and whether the field is a duration.
func (p place) field(name string) (path []string, duration bool) {
	switch {
	case strings.HasPrefix(name, gate):
		return p.gates, false
	case name == "minReadySeconds":
		return p.minReady, false
	case p.timeouts == nil:
		return nil, false
	case p.durations:
		return slices.Concat(p.timeouts, []string{name}), true
	default:
		return slices.Concat(p.timeouts, []string{name + "Seconds"}), false
	}
}

// put adds content to an object, as far as the place has fields for it.
func (p place) put(object map[string]any, c content) {
	c = p.holds(c)
	for _, in := range []column{labelColumn, annotationColumn} {
		for name, value := range c[in] {
			set(object, value, slices.Concat(p.metadata, []string{string(in), name})...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c[taintColumn])) {
		p.putTaint(object, id, c[taintColumn][id])
	}
	for _, name := range slices.Sorted(maps.Keys(c[fieldColumn])) {
		p.putField(object, name, c[fieldColumn][name])
	}
}

func (p place) putTaint(object map[string]any, id, value string) {
	key, effect, _ := strings.Cut(id, ":")
	value, propagation, _ := strings.Cut(value, "|")
	item := map[string]any{"key": key, "effect": effect}
	if value != "" {
		item["value"] = value
	}
	if !p.node {
		item["propagation"] = propagation
	}
	putItem(object, item, p.taints, "key", "effect")
}

func (p place) putField(object map[string]any, name, value string) {
	path, duration := p.field(name)
	if condition, ok := strings.CutPrefix(name, gate); ok {
		item := map[string]any{"conditionType": condition}
		if value != "" {
			item["polarity"] = value
		}
		putItem(object, item, path, "conditionType")
		return
	}
	if duration {
		set(object, value+"s", path...)
		return
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	must(err)
	set(object, seconds, path...)
}

// putItem adds an item to a list. It replaces the item with the same keys.
func putItem(object, item map[string]any, path []string, keys ...string) {
	items := slices.DeleteFunc(listAt(object, path), func(other any) bool {
		m, ok := other.(map[string]any)
		return ok && !slices.ContainsFunc(keys, func(key string) bool { return m[key] != item[key] })
	})
	must(unstructured.SetNestedSlice(object, append(items, item), path...))
}

// read returns the content of an object, without the test's own label and the tracking annotations of a Node.
func (p place) read(object map[string]any) content {
	got := content{labelColumn: {}, annotationColumn: {}, taintColumn: {}, fieldColumn: {}}
	if p.metadata != nil {
		for _, in := range []column{labelColumn, annotationColumn} {
			entries, _, err := unstructured.NestedStringMap(object, slices.Concat(p.metadata, []string{string(in)})...)
			must(err)
			got[in] = entries
		}
		delete(got[labelColumn], touched)
	}
	if p.node {
		for _, key := range tracking() {
			delete(got[annotationColumn], key)
			delete(got[labelColumn], key)
		}
	}
	for _, item := range listAt(object, p.taints) {
		m, _ := item.(map[string]any)
		got[taintColumn][text(m["key"])+":"+text(m["effect"])] = text(m["value"]) + "|" + text(m["propagation"])
	}
	for _, item := range listAt(object, p.gates) {
		m, _ := item.(map[string]any)
		got[fieldColumn][gate+text(m["conditionType"])] = text(m["polarity"])
	}
	for _, name := range timeoutNames("minReadySeconds") {
		path, duration := p.field(name)
		value, found := valueAt(object, path)
		if !found {
			continue
		}
		if duration {
			parsed, err := time.ParseDuration(text(value))
			must(err)
			value = int64(parsed.Seconds())
		}
		got[fieldColumn][name] = fmt.Sprint(value)
	}
	return got.and()
}

// cut removes the place from an object: a change of the other fields could cause a rollout.
func (p place) cut(object map[string]any) {
	paths := [][]string{p.metadata, p.taints, p.gates, p.minReady, p.timeouts}
	if p.durations {
		paths = paths[:4]
		for _, name := range timeoutNames() {
			path, _ := p.field(name)
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		if len(path) > 0 {
			unstructured.RemoveNestedField(object, path...)
		}
	}
}

func timeoutNames(others ...string) []string {
	return append([]string{"nodeDrainTimeout", "nodeVolumeDetachTimeout", "nodeDeletionTimeout"}, others...)
}

func tracking() []string {
	return []string{
		clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation, clusterv1.TaintsFromMachineAnnotation,
		inherit.LabelsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation, inherit.TaintsFromMachineAnnotation,
		inherit.RecordAnnotation, inherit.RecordLabel,
	}
}

func listAt(object map[string]any, path []string) []any {
	value, _ := valueAt(object, path)
	items, _ := value.([]any)
	return slices.Clone(items)
}

func valueAt(object map[string]any, path []string) (any, bool) {
	if path == nil {
		return nil, false
	}
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	must(err)
	return value, found
}

func set(object map[string]any, value any, path ...string) {
	must(unstructured.SetNestedField(object, value, path...))
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// must panics on an error in an object of the test itself.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("a fixture is wrong: %v", err))
	}
}
