// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/resource"
)

func parse(g *WithT, text string) *Set {
	g.THelper()
	set := &Set{}
	g.Expect(set.Parse("a.yaml", []byte(text))).To(Succeed())
	return set
}

func names(set *Set) []string {
	all := []string{}
	for _, object := range set.Objects {
		all = append(all, object.GetName())
	}
	return all
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "

func TestLines(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, `# a comment
---
apiVersion: v1
kind: A
metadata:
  name: one
spec:
  list:
  - name: x
    class: w
    value: 1
  - class: v
    labels:
      a.example/b: c
  base: &base
    key: value
  other: *base
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: A
  metadata: {name: two}
`)
	g.Expect(names(set)).To(Equal([]string{"one", "two"}))
	for path, line := range map[string]int{
		"": 3, "metadata.name": 6, "spec.list": 8, "spec.list[0].value": 11, "spec.list[x].value": 11, "spec.list[v].labels[a.example/b]": 14,
		"spec.list[1]": 12, "spec.list[7].value": 8, "spec.nothing.there": 7, "spec.other.key": 16,
	} {
		g.Expect(set.Objects[0].Line(path)).To(Equal(line), path)
	}
	g.Expect(set.Objects[1].Line("metadata.name")).To(Equal(24))
}

func TestDuplicate(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, "---\n"+configMap+"one\n"+configMap+"two\n---\n"+configMap+"three\n")
	g.Expect(names(set)).To(Equal([]string{"two", "three"}))
	key, line := set.Objects[0].Duplicate()
	g.Expect([]any{key, line}).To(Equal([]any{"apiVersion", 6}))
	key, _ = set.Objects[1].Duplicate()
	g.Expect(key).To(BeEmpty())
	_, line = parse(g, "kind: List\napiVersion: v1\nitems:\n- {kind: A, apiVersion: v1}\n- kind: B\n  apiVersion: v1\n  b: {c: d,\n    c: e}\n").Objects[1].Duplicate()
	g.Expect(line).To(Equal(8))
}

func TestJSON(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, "{\n\t\"apiVersion\": \"v1\", \"kind\": \"A\",\n\t\"metadata\": {\"name\": \"one\"}\n}\n{\"apiVersion\": \"v1\", \"kind\": \"A\",\n\"metadata\": {\"name\": \"two\"}}")
	g.Expect(names(set)).To(Equal([]string{"one", "two"}))
	g.Expect([]int{set.Objects[0].Line("metadata.name"), set.Objects[1].Line("metadata.name")}).To(Equal([]int{3, 6}))
}

func TestDocuments(t *testing.T) {
	for text, want := range map[string][]string{
		"a: !reference [x, y]\n? [1, 2]\n: 3\n---\nplain\n---\n- a\n---\nkind: only\n":        {},
		"---\n---\n# nothing\n---\n%YAML 1.2\n---\n" + configMap + "one\n...\n":               {"one"},
		"\ufeff" + strings.ReplaceAll(configMap+"one\n---\n"+configMap+"two\n", "\n", "\r\n"): {"one", "two"},
		"${EXTRA:=}\n\n---\n" + configMap + "one\n":                                           {"one"}, // a variable for a whole document
		"# a comment\n${EXTRA:=# x}":                                                          {},
	} {
		NewWithT(t).Expect(names(parse(NewWithT(t), text))).To(Equal(want), text)
	}
	g, set := NewWithT(t), &Set{}
	err := set.Parse("a.yaml", []byte(configMap+"one\n---\na: [\n---\n"+configMap+"two\n"))
	g.Expect(err).To(MatchError(HavePrefix("a.yaml:6: cannot read the document that begins here: ")))
	g.Expect(names(set)).To(Equal([]string{"one", "two"})) // the other documents are read
}

func TestTemplates(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, configMap+"${NAME:=one}\n---\n"+configMap+"${NAME}\n---\nkind: {{ .b }}\n---\nkind: [${b}]\n---\n{{- /*\nb\n*/ -}}\n{{ if .c }}\na: b\n{{ end }}\n---\na:\n  b: c\n  {{- with .d }}\n  e: f\n  {{- end }}\n")
	g.Expect(names(set)).To(Equal([]string{"one", "${NAME}"}))
	g.Expect(set.Templates).To(HaveLen(4))
	g.Expect(set.Templates[0].Line("")).To(Equal(11))
}

// TestVariablesElsewhere checks that a broken document with a variable or a template in some text does not count as a template.
func TestVariablesElsewhere(t *testing.T) {
	for _, text := range []string{"run: 'ls ${HOME}'\na: [\n", "a: [\nrun: 'ls ${HOME}'\n", "name: '{{ ds.meta_data.hostname }}'\na: b: c\n"} {
		g, set := NewWithT(t), &Set{}
		g.Expect(set.Parse("a.yaml", []byte(text))).NotTo(Succeed(), text)
		g.Expect(set.Templates).To(BeEmpty(), text)
	}
}

func TestRead(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	write := func(name, content string) {
		g.Expect(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)).To(Succeed())
	}
	write("a.yaml", configMap+"a\n")
	write("b.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`)
	write("README.md", "no manifest")
	write("below/c.yml", configMap+"c\n")
	write("prod/kustomization.yaml", "resources: [c.yaml]\nnamePrefix: prod-\n")
	write("prod/c.yaml", configMap+"c\n")
	write("none/README.md", "no manifest")
	for _, c := range []struct {
		options resource.FilenameOptions
		want    []string
		wrong   string
	}{
		{options: resource.FilenameOptions{Filenames: []string{dir}}, want: []string{"a", "b"}},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/below"}, Recursive: true}, want: []string{"c"}},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/a.yaml", "-"}}, want: []string{"a", "stdin"}},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/*.yaml"}}, want: []string{"a"}},
		{options: resource.FilenameOptions{Kustomize: dir + "/prod"}, want: []string{"prod-c"}},
		{options: resource.FilenameOptions{Kustomize: dir + "/below"}, wrong: "unable to find one of 'kustomization.yaml"},
		{options: resource.FilenameOptions{Kustomize: dir, Recursive: true}, wrong: "can't be used with"},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/missing.yaml", dir + "/a.yaml"}}, want: []string{"a"}, wrong: "does not exist"},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/none"}}, wrong: "no files with the extension"},
		{options: resource.FilenameOptions{Filenames: []string{"https://example.com/a.yaml"}}, wrong: "URLs are not supported"},
		{options: resource.FilenameOptions{}, wrong: "specify files or directories"},
	} {
		set, err := Read(strings.NewReader(configMap+"stdin\n"), c.options)
		if c.wrong == "" {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(c.wrong)))
		}
		g.Expect(names(set)).To(ConsistOf(c.want), "%+v", c.options)
		for _, object := range set.Objects {
			g.Expect(object.Line("metadata.name") == 0).To(Equal(c.options.Kustomize != ""))
		}
	}
}
