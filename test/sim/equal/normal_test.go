// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// normaliser removes the values that differ between two API servers from their answers.
type normaliser struct {
	// tokens replace UIDs and generated names, versions replace resourceVersions: in the order of their first appearance.
	tokens, versions map[string]string
}

var (
	timestamp = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	// noise matches details of messages that name the storage, the network or a version of an object.
	noise = []struct {
		*regexp.Regexp
		by string
	}{
		{regexp.MustCompile(`Key: [^,]+`), "Key: …"},
		{regexp.MustCompile(`(ResourceVersion in (?:precondition|object meta): )\d+`), "$1…"},
		{regexp.MustCompile(`(ResourceVersion in record )\(\d+\)`), "$1(…)"},
		{regexp.MustCompile(`(\\"resourceVersion\\":\\")\d+`), "$1…"},
		{regexp.MustCompile(`(failed to call webhook: ).*`), "$1…"},
		{regexp.MustCompile(`(too old resource version: 1 )\(\d+\)`), "$1(…)"},
	}
)

func (n *normaliser) normals(values []map[string]any) []any {
	var normal []any
	for _, value := range values {
		normal = append(normal, n.normal(value))
	}
	return normal
}

func (n *normaliser) normal(value map[string]any) any {
	n.learn(value)
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var pairs []string
	for _, known := range slices.Sorted(maps.Keys(n.tokens)) {
		pairs = append(pairs, known, n.tokens[known])
	}
	var copied any
	if err := json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), &copied); err != nil {
		panic(err)
	}
	return n.clean("", copied)
}

// learn records UIDs and generated names.
func (n *normaliser) learn(value any) {
	switch value := value.(type) {
	case map[string]any:
		if uid, ok := value["uid"].(string); ok && len(uid) == 36 {
			n.token("uid", uid)
		}
		prefix, _ := value["generateName"].(string)
		if name, ok := value["name"].(string); ok && prefix != "" && strings.HasPrefix(name, prefix) && len(name) == len(prefix)+5 {
			n.token(prefix, name)
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			n.learn(value[key])
		}
	case []any:
		for _, below := range value {
			n.learn(below)
		}
	}
}

func (n *normaliser) token(of, value string) {
	if n.tokens[value] == "" {
		n.tokens[value] = fmt.Sprintf("%s#%d", of, len(n.tokens)+1)
	}
}

// clean returns a value without the parts that differ.
func (n *normaliser) clean(key string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for _, below := range slices.Sorted(maps.Keys(value)) {
			value[below] = n.clean(below, value[below])
		}
		if key == "metadata" && value["resourceVersion"] != nil {
			value["resourceVersion"] = n.version(value)
		}
		if key == "details" {
			byText(value["causes"])
		}
		delete(value, "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions") // it names all groups of the API server
		if value["kind"] == "Status" {
			value["message"] = shuffled(fmt.Sprint(value["message"]))
		}
		return ofItems(key, value)
	case []any:
		for i, below := range value {
			value[i] = n.clean("", below)
		}
		if key == "managedFields" {
			return sorted(value)
		}
		return value
	case string:
		if key == "caBundle" || key == "url" {
			return "…"
		}
		for _, n := range noise {
			value = n.ReplaceAllString(value, n.by)
		}
		if key == "time" { // of a manager: sorted uses its order
			return value
		}
		return timestamp.ReplaceAllString(value, "some time")
	}
	return value
}

// ofItems returns a schema of the items of lists and maps without its default. Since v0.37, k8s.io writes no empty default in the schemas of
// metadata, nor the allOf that a reference needs with a default.
func ofItems(key string, value map[string]any) any {
	if key != "items" && key != "additionalProperties" {
		return value
	}
	delete(value, "default")
	if all, ok := value["allOf"].([]any); ok && len(value) == 1 {
		return all[0]
	}
	return value
}

// byText sorts causes, whose order is random.
func byText(causes any) {
	list, _ := causes.([]any)
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// shuffled returns a message with its words in order, if the message lists several items in random order.
func shuffled(message string) string {
	if !strings.Contains(message, "is invalid: [") && !strings.Contains(message, " conflicts: ") {
		return message
	}
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" [],\n", r) })
	slices.Sort(words)
	return strings.Join(words, " ")
}

// version returns a number for an object's version; versions of lists and bookmarks depend on other objects in the store.
func (n *normaliser) version(metadata map[string]any) string {
	version := fmt.Sprint(metadata["resourceVersion"])
	if metadata["name"] == nil || metadata["uid"] == nil {
		return "some version"
	}
	if n.versions[version] == "" {
		n.versions[version] = fmt.Sprintf("version %d", len(n.versions)+1)
	}
	return n.versions[version]
}

// sorted returns managed fields in an order that does not depend on time, and reports whether they had the order of an API server.
func sorted(entries []any) any {
	order := func(withTime bool) func(a, b any) int {
		return func(a, b any) int {
			x, _ := a.(map[string]any)
			y, _ := b.(map[string]any)
			var of int
			for _, key := range []string{"operation", "time", "manager", "apiVersion", "subresource"} {
				if key != "time" || withTime {
					left, _ := x[key].(string)
					right, _ := y[key].(string)
					of = cmp.Or(of, strings.Compare(left, right))
				}
			}
			return of
		}
	}
	inOrder := slices.IsSortedFunc(entries, order(true))
	slices.SortStableFunc(entries, order(false))
	for _, entry := range entries {
		entry, _ := entry.(map[string]any)
		if at, ok := entry["time"].(string); ok {
			entry["time"] = timestamp.ReplaceAllString(at, "some time")
		}
	}
	return map[string]any{"in order": inOrder, "entries": entries}
}
