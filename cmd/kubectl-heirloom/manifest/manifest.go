// SPDX-License-Identifier: Apache-2.0

// Package manifest reads Kubernetes objects from files, without an API server, and knows the line of every field.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/resource"
	sigsyaml "sigs.k8s.io/yaml"
)

// Set holds the objects that were read from files.
type Set struct {
	Objects []*Object
	// Templates holds the documents that are no objects before someone fills in their variables.
	Templates []*Object
	// Incomplete holds the documents that look like objects, but have no kind or no apiVersion.
	Incomplete []*Object
	// Documents counts the documents that are not empty: objects, templates, and other documents.
	Documents int
}

// Object is an object in a file.
type Object struct {
	*unstructured.Unstructured
	File string // the path as given, or the kustomization that renders the object
	Text string // the text of a template

	node  *yaml.Node // nil for templates, and for objects that a kustomization renders
	above int        // lines of the file before the node's document, or the line of a template
}

var (
	// variable matches a variable of clusterctl or an action of Helm; defaults matches a variable of clusterctl with a default.
	variable = regexp.MustCompile(`\$\{[^}\n]*\}|(?s:\{\{.*?\}\})`)
	defaults = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*:?[-=]([^}$\n]*)\}`)
	// separator matches the beginning of a document, preamble the lines before its content, and step an element of a path.
	separator = regexp.MustCompile(`(?m)^(---)(?:\s|$)|\}\s*\n(\{)["\s]`)
	preamble  = regexp.MustCompile(`^(\s*([#%].*|---\s|---$|\.\.\.))*\s*`)
	step      = regexp.MustCompile(`\[[^\]]*\]|[^.\[]+`)
	// twice matches the decoder's error for a duplicate key.
	twice = regexp.MustCompile(`line (\d+): mapping key "(.*)" already defined`)
)

// Placeholder reports whether a text has a template's variable without a default, such as ${CLUSTER_NAME} of clusterctl.
func Placeholder(text string) bool { return strings.Contains(text, "${") && variable.MatchString(text) }

// Read reads the files of kubectl's flags --filename, --recursive and --kustomize; "-" is in. Even with an error, the result has all
// objects that could be read. Objects that a kustomization renders have no lines: they are in no file.
func Read(in io.Reader, from resource.FilenameOptions) (*Set, error) {
	set, errs := &Set{}, []error{from.RequireFilenameOrKustomize()}
	if len(from.Filenames) == 0 && from.Kustomize == "" {
		return set, errors.New("specify files or directories: as arguments, with -f or with -k")
	}
	if from.Kustomize != "" {
		infos, err := resource.NewLocalBuilder().Unstructured().FilenameParam(false, &from).Flatten().Do().Infos()
		for _, info := range infos {
			if object, ok := info.Object.(*unstructured.Unstructured); ok {
				set.Documents++
				set.add(&Object{File: filepath.ToSlash(from.Kustomize), Unstructured: object})
			}
		}
		return set, err
	}
	for _, name := range from.Filenames {
		if name == "-" {
			content, err := io.ReadAll(in)
			errs = append(errs, err, set.Parse("<stdin>", content))
			continue
		}
		files, err := expand(name, from.Recursive)
		errs = append(errs, err)
		for _, file := range files {
			content, err := os.ReadFile(file) //nolint:gosec // the user names it
			errs = append(errs, err, set.Parse(filepath.ToSlash(file), content))
		}
	}
	return set, errors.Join(errs...)
}

// expand returns the files that a name stands for: the file itself, the manifests of a directory, or the matches of a pattern.
func expand(name string, recursive bool) (files []string, err error) {
	if strings.Contains(name, "://") {
		return nil, fmt.Errorf("%s: URLs are not supported: download the file first", name)
	}
	matches, _ := filepath.Glob(name)
	if _, err := os.Stat(name); err == nil || len(matches) == 0 {
		matches = []string{name}
	}
	for _, match := range matches {
		visitors, err := resource.ExpandPathsToFileVisitors(nil, match, recursive, resource.FileExtensions, nil)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("the path %q does not exist", match) // as kubectl says
		}
		if err != nil {
			return nil, err // the error names the file
		}
		for _, visitor := range visitors {
			files = append(files, visitor.(*resource.FileVisitor).Path)
		}
	}
	if len(files) == 0 {
		err = fmt.Errorf("%s: no files with the extension %s (use --recursive for subdirectories)", name, strings.Join(resource.FileExtensions, ", "))
	}
	return files, err
}

// Parse adds the objects of a file: YAML documents, JSON objects one after the other, and the items of lists. Documents that are no objects
// are left out. The error names each document that is neither YAML nor a template.
func (s *Set) Parse(file string, content []byte) error {
	var errs []error
	begin, content := 0, bytes.TrimPrefix(content, []byte("\ufeff"))
	for _, at := range append(separator.FindAllSubmatchIndex(content, -1), []int{0, 0, len(content), 0, 0, 0}) {
		errs = append(errs, s.document(file, content[begin:max(at[2], at[4])], bytes.Count(content[:begin], []byte("\n"))))
		begin = max(at[2], at[4])
	}
	return errors.Join(errs...)
}

func (s *Set) document(file string, text []byte, above int) error {
	before := preamble.Find(text)
	if len(before) == len(text) {
		return nil
	}
	s.Documents++
	text, line := defaults.ReplaceAll(text, []byte("$1")), above+1+bytes.Count(before, []byte("\n"))
	node, object, err := decode(text)
	if err == nil {
		o := &Object{File: file, Unstructured: &unstructured.Unstructured{Object: object}, node: node, above: above}
		if s.add(o); (o.GetKind() == "" || o.GetAPIVersion() == "") && o.Object["metadata"] != nil {
			s.Incomplete = append(s.Incomplete, o)
		}
		return nil
	}
	for _, filled := range []string{"x", ""} { // if either changes the error, the variables cause it
		if _, _, otherwise := decode(variable.ReplaceAll(text, []byte(filled))); otherwise == nil || otherwise.Error() != err.Error() {
			s.Templates = append(s.Templates, &Object{&unstructured.Unstructured{}, file, string(text), nil, line})
			return nil
		}
	}
	return fmt.Errorf("%s:%d: cannot read the document that begins here: %w", file, line, err)
}

// decode reads a document twice: as kubectl does, and with its lines. A document that is no object has no fields.
func decode(text []byte) (*yaml.Node, map[string]any, error) {
	document, object := &yaml.Node{}, map[string]any{}
	if err := yaml.Unmarshal(text, document); err != nil || len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, nil, err
	}
	_, kind := below(document.Content[0], "kind")
	if _, metadata := below(document.Content[0], "metadata"); kind == nil && metadata == nil {
		return nil, nil, nil
	}
	raw, err := sigsyaml.YAMLToJSON(text)
	if err == nil {
		err = utiljson.Unmarshal(raw, &object)
	}
	return document.Content[0], object, err
}

// add adds an object, or the items of a list.
func (s *Set) add(o *Object) {
	items, ok := o.Object["items"].([]any)
	if isList := ok && strings.HasSuffix(o.GetKind(), "List"); !isList && o.GetKind() != "" && o.GetAPIVersion() != "" {
		s.Objects = append(s.Objects, o)
	} else if isList {
		_, nodes := below(o.node, "items")
		for i, item := range items {
			object, _ := item.(map[string]any)
			_, node := below(nodes, strconv.Itoa(i))
			s.add(&Object{File: o.File, Unstructured: &unstructured.Unstructured{Object: object}, node: node, above: o.above})
		}
	}
}

// Line returns the line of a field, or of its nearest parent that the object has. The path has the notation of Kubernetes, such as
// "spec.template.metadata.labels[a.example/b]". An item of a list may also be selected by its name or class. The result is 0 if a
// kustomization renders the object.
func (o *Object) Line(path string) int {
	if o.node == nil {
		return o.above
	}
	node, line := o.node, o.node.Line
	for _, name := range step.FindAllString(path, -1) {
		key, value := below(node, strings.Trim(name, "[]"))
		if value == nil {
			break
		}
		node, line = value, key.Line
	}
	return o.above + line
}

// below returns the field or item with a name, and the node whose line counts.
func below(node *yaml.Node, name string) (key, value *yaml.Node) {
	switch {
	case node == nil:
	case node.Kind == yaml.AliasNode:
		return below(node.Alias, name)
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}
	case node.Kind == yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
		for _, key := range []string{"name", "class"} { // a section of a topology has both
			for _, item := range node.Content {
				if _, value := below(item, key); value != nil && value.Value == name {
					return item, item
				}
			}
		}
	}
	return nil, nil
}

// Duplicate returns a key that the object has twice, and the line of the second occurrence. The first occurrence is lost. Often a line
// "---" is missing between two objects.
func (o *Object) Duplicate() (key string, line int) {
	if o.node == nil {
		return "", 0
	}
	if found := twice.FindStringSubmatch(fmt.Sprint(o.node.Decode(new(any)))); found != nil {
		line, _ = strconv.Atoi(found[1])
		return found[2], o.above + line
	}
	return "", 0
}
