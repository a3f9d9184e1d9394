// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Objects here have maps in place of the lists of keyed items, so that a JSON merge patch (RFC 7386) describes every difference and every
// change. An API server gets and sends lists.

// keys has the keys of the items of lists.
var keys = map[string][]string{
	"taints": {"key", "effect"}, "readinessGates": {"conditionType"}, "machineDeployments": {"class"}, "machinePools": {"class"},
}

// mapped replaces lists by maps.
func mapped(object map[string]any) map[string]any {
	result := map[string]any{}
	for name, value := range object {
		switch value := value.(type) {
		case map[string]any:
			result[name] = mapped(value)
			continue
		case []any:
			if keys[name] != nil {
				result[name] = mappedList(value, keys[name])
				continue
			}
		}
		result[name] = value
	}
	return result
}

func mappedList(items []any, keys []string) map[string]any {
	result := map[string]any{}
	for _, item := range items {
		item, _ := item.(map[string]any)
		var key []string
		for _, name := range keys {
			key = append(key, fmt.Sprint(item[name]))
		}
		delete(item, "timeAdded") // differs in each run
		result[strings.Join(key, ":")] = mapped(item)
	}
	return result
}

// listed replaces the maps by lists.
func listed(object map[string]any) map[string]any {
	result := map[string]any{}
	for name, value := range object {
		items, ok := value.(map[string]any)
		switch {
		case ok && keys[name] != nil:
			list := []any{}
			for _, key := range slices.Sorted(maps.Keys(items)) {
				list = append(list, listed(items[key].(map[string]any))) //nolint:forcetypeassert // an item
			}
			result[name] = list
		case ok:
			result[name] = listed(items)
		default:
			result[name] = value
		}
	}
	return result
}

// put returns the merge patch that adds content at the place, as far as the place has fields for it.
func (at place) put(c content) map[string]any {
	patch := map[string]any{}
	for column, path := range at {
		if c[column] == nil {
			continue
		}
		fields := strings.Split(path, ".")
		added := map[string]any{}
		must(unstructured.SetNestedField(added, mapped(map[string]any{fields[len(fields)-1]: c[column]})[fields[len(fields)-1]], fields...))
		patch = merge(patch, added)
	}
	return patch
}

// merge applies merge patches to an object.
func merge(object map[string]any, patches ...map[string]any) map[string]any {
	for _, patch := range patches {
		merged, err := jsonpatch.MergePatch(encode(object), encode(patch))
		must(err)
		object = decode(merged)
	}
	return object
}

// difference returns the merge patch that makes one object of another.
func difference(before, after map[string]any) map[string]any {
	patch, err := jsonpatch.CreateMergePatch(encode(before), encode(after))
	must(err)
	return decode(patch)
}

func encode(object map[string]any) []byte {
	text, err := json.Marshal(object)
	must(err)
	return text
}

func decode(text []byte) map[string]any {
	var object map[string]any
	must(json.Unmarshal(text, &object)) // with integers, as the API's decoders have them
	return object
}

// inherited returns the part of a stored object that rules are about. It leaves out the record of a Node, which repeats other annotations.
func inherited(object *unstructured.Unstructured) map[string]any {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	for _, key := range []string{inherit.RecordLabel, inherit.RecordAnnotation} {
		delete(labels, key)
		delete(annotations, key)
	}
	// Cluster API's own list has a taint of an annotation once the taint is a typed taint of the Machine, which is sometimes before the Node is written.
	if list, tracked := annotations[clusterv1.TaintsFromMachineAnnotation]; tracked {
		own := regexp.MustCompile("=[^:]*").ReplaceAllString(annotations[inherit.TaintsFromMachineAnnotation], "")
		ids := strings.FieldsFunc(list+","+own, func(r rune) bool { return r == ',' })
		slices.Sort(ids)
		annotations[clusterv1.TaintsFromMachineAnnotation] = strings.Join(ids, ",")
		delete(annotations, inherit.TaintsFromMachineAnnotation)
	}
	part := map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}, "spec": object.Object["spec"]}
	return mapped(decode(encode(part)))
}

// manifestsFor returns the manifests for a case, by name.
func (of *table) manifestsFor(name, cluster string) map[string]map[string]any {
	text := os.Expand(of.manifests, func(variable string) string { return map[string]string{"name": name, "cluster": cluster}[variable] })
	var all map[string]map[string]any
	must(yaml.Unmarshal([]byte(text), &all))
	for name, manifest := range all {
		if manifest["kind"] != "Node" {
			manifest = merge(manifest, map[string]any{"metadata": map[string]any{"namespace": cluster}})
		}
		all[name] = mapped(decode(encode(manifest)))
	}
	return all
}

// must panics on a mistake in testdata.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("testdata is wrong: %v", err))
	}
}
