// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Object is an object in a file.
type Object struct {
	*unstructured.Unstructured
	// File is the name of the file as it was given, or where else the object comes from.
	File string

	node *yaml.Node
	// above is how many lines of the file come before the first of the node's document.
	above int
}

// Line returns the line of a field, or of the last field on the way to it that the object has. The path is one of Kubernetes' own,
// such as "spec.template.metadata.labels[a.example/b]". An item of a list may also be named by its name or class. The result is 0 if
// the object was not written by hand, so that it has no lines.
func (o *Object) Line(path string) int {
	if o.node == nil {
		return 0
	}
	node, line := o.node, o.node.Line
	for _, step := range steps(path) {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		key, value := below(node, step)
		if value == nil {
			break
		}
		node, line = value, key.Line
	}
	return o.above + line
}

// steps are the names and indexes on the way to a field.
func steps(path string) []string {
	var all []string
	for path != "" {
		if inside, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]"); ok && path[0] == '[' {
			all = append(all, inside)
			path = strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(all, path)
		}
		all = append(all, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return all
}

// below returns the field or the item of that name, and the node whose line is meant.
func below(node *yaml.Node, name string) (key, value *yaml.Node) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		item := itemOf(node, name)
		return item, item
	}
	return nil, nil
}

func itemOf(list *yaml.Node, name string) *yaml.Node {
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(list.Content) {
		return list.Content[i]
	}
	for _, key := range []string{"name", "class"} { // a topology's sections have both
		for _, item := range list.Content {
			if _, value := below(item, key); value != nil && value.Value == name {
				return item
			}
		}
	}
	return nil
}

// Duplicate returns a key that the object has twice, and the line of the second. The first is lost, as if it were not there. Often a
// line "---" is missing between two objects.
func (o *Object) Duplicate() (key string, line int) {
	if o.node == nil {
		return "", 0
	}
	if second := duplicate(o.node); second != nil {
		return second.Value, o.above + second.Line
	}
	return "", 0
}

func duplicate(node *yaml.Node) *yaml.Node {
	seen := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[child.Value] {
				return child
			}
			seen[child.Value] = true
		}
		if found := duplicate(child); found != nil {
			return found
		}
	}
	return nil
}
