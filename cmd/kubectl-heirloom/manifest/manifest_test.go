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
	g.Expect(key).To(Equal("apiVersion"))
	g.Expect(line).To(Equal(6))
	key, _ = set.Objects[1].Duplicate()
	g.Expect(key).To(BeEmpty())
}

func TestJSON(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, "{\n\t\"apiVersion\": \"v1\", \"kind\": \"A\",\n\t\"metadata\": {\"name\": \"one\"}\n}\n{\"apiVersion\": \"v1\", \"kind\": \"A\",\n\"metadata\": {\"name\": \"two\"}}")
	g.Expect(names(set)).To(Equal([]string{"one", "two"}))
	g.Expect(set.Objects[0].Line("metadata.name")).To(Equal(3))
	g.Expect(set.Objects[1].Line("metadata.name")).To(Equal(6))
}

func TestOtherYAMLIsSkipped(t *testing.T) {
	g := NewWithT(t)
	g.Expect(names(parse(g, "a: !reference [x, y]\n? [1, 2]\n: 3\n---\nplain\n---\n- a\n---\nkind: only\n"))).To(BeEmpty())
}

func TestWindowsFiles(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, "\ufeff"+strings.ReplaceAll(configMap+"one\n---\n"+configMap+"two\n", "\n", "\r\n"))
	g.Expect(names(set)).To(Equal([]string{"one", "two"}))
	g.Expect(set.Objects[1].Line("metadata.name")).To(Equal(9))
}

func TestTemplates(t *testing.T) {
	g := NewWithT(t)
	set := parse(g, configMap+"${NAME:=one}\n---\n"+configMap+"${NAME}\n---\nkind: {{ .b }}\n---\nkind: [${b}]\n---\na:\n  b: c\n  {{- with .d }}\n  e: f\n  {{- end }}\n")
	g.Expect(names(set)).To(Equal([]string{"one", "${NAME}"}))
	g.Expect(set.Notes).To(HaveLen(3))
	g.Expect(set.Notes[0].Line).To(Equal(11))
}

// TestVariablesElsewhere checks that a document with a variable or a template in some text is no template if something else is wrong.
func TestVariablesElsewhere(t *testing.T) {
	for _, text := range []string{"run: 'ls ${HOME}'\na: [\n", "a: [\nrun: 'ls ${HOME}'\n", "name: '{{ ds.meta_data.hostname }}'\na: b: c\n"} {
		g, set := NewWithT(t), &Set{}
		g.Expect(set.Parse("a.yaml", []byte(text))).NotTo(Succeed(), text)
		g.Expect(set.Notes).To(BeEmpty(), text)
	}
}

func TestWhatIsBrokenIsNamedAndTheRestIsRead(t *testing.T) {
	g, set := NewWithT(t), &Set{}
	err := set.Parse("a.yaml", []byte(configMap+"one\n---\na: [\n---\n"+configMap+"two\n"))
	g.Expect(err).To(MatchError(HavePrefix("a.yaml:6: cannot read the document that begins here: ")))
	g.Expect(names(set)).To(Equal([]string{"one", "two"}))
}

func TestEmptyDocuments(t *testing.T) {
	g := NewWithT(t)
	g.Expect(names(parse(g, "---\n---\n# nothing\n---\n%YAML 1.2\n---\n"+configMap+"one\n...\n"))).To(Equal([]string{"one"}))
}

// A variable may stand for a whole document, and its default for none.
func TestVariablesWithoutAnything(t *testing.T) {
	g := NewWithT(t)
	for _, empty := range []string{"${EXTRA:=}\n", "${EXTRA:=# x}", "---\n${EXTRA:=}\n", "# a comment\n${EXTRA:=}\n"} {
		g.Expect(names(parse(g, empty))).To(BeEmpty(), empty)
		g.Expect(names(parse(g, empty+"\n---\n"+configMap+"one\n"))).To(Equal([]string{"one"}), empty)
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
		{options: resource.FilenameOptions{Filenames: []string{dir + "/a.yaml", dir + "/./a.yaml", "-"}}, want: []string{"a", "stdin"}},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/*.yaml"}}, want: []string{"a"}},
		{options: resource.FilenameOptions{Kustomize: dir + "/prod"}, want: []string{"prod-c"}},
		{options: resource.FilenameOptions{Kustomize: dir + "/below"}, wrong: "--kustomize="},
		{options: resource.FilenameOptions{Kustomize: dir, Recursive: true}, wrong: "cannot be used with"},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/missing.yaml", dir + "/a.yaml"}}, want: []string{"a"}, wrong: "no such file"},
		{options: resource.FilenameOptions{Filenames: []string{dir + "/none"}}, wrong: "no files ending in"},
		{options: resource.FilenameOptions{Filenames: []string{"https://example.com/a.yaml"}}, wrong: "nothing is read from the network"},
		{options: resource.FilenameOptions{}, wrong: "name the files to read"},
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
