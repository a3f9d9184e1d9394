// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Note says what could not be read in a file that is a template, so that it is no object yet.
type Note struct {
	File    string
	Line    int
	Message string
	// Text is the template.
	Text string
}

// Set is what was read.
type Set struct {
	Objects []*Object
	Notes   []Note
}

// variable is one of clusterctl, or something that Helm fills in.
var variable = regexp.MustCompile(`\$\{[^}\n]*\}|(?s:\{\{.*?\}\})`)

// Placeholder reports whether a text has a variable of a template that has no default, such as ${CLUSTER_NAME} of clusterctl.
func Placeholder(text string) bool {
	return regexp.MustCompile(`\$\{[^}]*\}`).MatchString(text)
}

// withDefaults puts defaults in the place of the variables that have one, such as "${A:=b}", as clusterctl does.
func withDefaults(text []byte) []byte {
	return regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*:?[-=]([^}$\n]*)\}`).ReplaceAll(text, []byte("$1"))
}

// Parse adds the objects of a file: YAML documents, JSON objects one after the other, and the items of lists. What is no object is
// left out. The error names each document that is neither YAML nor a template.
func (s *Set) Parse(file string, content []byte) error {
	var errs []error
	for _, one := range documents(content) {
		if err := s.document(file, one); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// document is a part of a file.
type document struct {
	text  []byte
	above int
}

func documents(content []byte) []document {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) {
		if all := jsonDocuments(content); all != nil {
			return all
		}
	}
	var all []document
	var one document
	line := 0
	for text := range bytes.Lines(content) {
		if bytes.HasPrefix(text, []byte("---")) && (len(bytes.TrimSpace(text)) == 3 || text[3] == ' ' || text[3] == '\t') {
			all = append(all, one)
			one = document{above: line}
		}
		one.text = append(one.text, text...)
		line++
	}
	return append(all, one)
}

// jsonDocuments returns the JSON objects of a file; nil if it has something else, too.
func jsonDocuments(content []byte) []document {
	var all []document
	decoder := json.NewDecoder(bytes.NewReader(content))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return nil
		}
		before := content[:decoder.InputOffset()-int64(len(raw))]
		all = append(all, document{text: raw, above: bytes.Count(before, []byte("\n"))})
	}
}

// first returns the first line of the file in which the document has more than comments and directives; 0 if it has none.
func (d document) first() int {
	number := d.above
	for line := range bytes.Lines(d.text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && string(line) != "---" && string(line) != "..." {
			return number
		}
	}
	return 0
}

func (s *Set) document(file string, d document) error {
	if d.first() == 0 {
		return nil
	}
	text := withDefaults(d.text)
	node, object, err := decode(text)
	if err != nil {
		for _, filled := range []string{"x", ""} { // if either makes a difference, its variables are what is wrong
			if _, _, otherwise := decode(variable.ReplaceAll(text, []byte(filled))); otherwise == nil || otherwise.Error() != err.Error() {
				s.Notes = append(s.Notes, Note{file, d.first(),
					"this is a template and not read: fill in its variables first, as clusterctl generate does, or give the manifests that it renders", string(text)})
				return nil
			}
		}
		return fmt.Errorf("%s:%d: cannot read the document that begins here: %w", file, d.first(), err)
	}
	s.add(&Object{File: file, Unstructured: &unstructured.Unstructured{Object: object}, node: node, above: d.above})
	return nil
}

// decode reads a document twice: as kubectl does, and with its lines. What is no object has no fields.
func decode(text []byte) (*yaml.Node, map[string]any, error) {
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, nil, err
	}
	if len(document.Content) == 0 { // a variable whose default is empty or a comment was all that it had
		return nil, map[string]any{}, nil
	}
	node, object := document.Content[0], map[string]any{}
	if _, kind := below(node, "kind"); node.Kind != yaml.MappingNode || kind == nil {
		return node, object, nil
	}
	raw, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		return nil, nil, err
	}
	return node, object, utiljson.Unmarshal(raw, &object)
}

// add adds an object, or the items of a list.
func (s *Set) add(o *Object) {
	if !strings.HasSuffix(o.GetKind(), "List") || o.Object["items"] == nil {
		if o.GetKind() != "" && o.GetAPIVersion() != "" {
			s.Objects = append(s.Objects, o)
		}
		return
	}
	items, _ := o.Object["items"].([]any)
	var nodes []*yaml.Node
	if o.node != nil {
		if _, list := below(o.node, "items"); list != nil {
			nodes = list.Content
		}
	}
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		one := &Object{File: o.File, Unstructured: &unstructured.Unstructured{Object: fields}, above: o.above}
		if i < len(nodes) {
			one.node = nodes[i]
		}
		s.add(one)
	}
}
