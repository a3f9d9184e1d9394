// SPDX-License-Identifier: Apache-2.0

// Package providers_test checks the examples of docs/providers without their providers.
package providers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/lint"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// longest is the number of words of a page.
const longest = 150

// kind is a kind of a provider in testdata/schemas.yaml.
type kind struct {
	Source, APIVersion, Kind string
	Spec                     apiextensionsv1.JSONSchemaProps
}

// facts are the values of the chart that a page shows.
type facts struct {
	Facts []struct{ Group, Kind, FieldPath, Label string }
}

// Each example has only fields that Cluster API's CRDs and testdata/schemas.yaml know, and nothing that lint complains about. Each fact is
// a field of its kind.
func TestProviderExamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/providers/*.md")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(len(pages)).To(BeNumerically(">", 10))
	schemas := schemas(t)
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if name == "README" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text := read(g, page)
			g.Expect(len(strings.Fields(text))).To(BeNumerically("<=", longest))
			g.Expect(text).To(ContainSubstring("(" + name + ".yaml)"))
			example := read(g, strings.TrimSuffix(page, ".md")+".yaml")
			objects, err := controlplane.DecodeObjects(example)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects).NotTo(BeEmpty())
			for _, object := range objects {
				checks(g, schemas, &object)
			}
			expectNoFindings(g, name, example)
			for _, block := range markdown.Parse([]byte(text)).Blocks {
				if block.Language == "yaml" {
					expectFields(g, schemas, block.Text)
				}
			}
		})
	}
}

func read(g *WithT, file string) string {
	g.THelper()
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// schemas returns the schemas of Cluster API's CRDs and of testdata/schemas.yaml.
func schemas(t *testing.T) map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps {
	t.Helper()
	g, all := NewWithT(t), map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps{}
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"machinedeployments", "machinepools"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		text := read(g, filepath.Join(strings.TrimSpace(string(module)), "core/config/crd/bases/cluster.x-k8s.io_"+name+".yaml"))
		g.Expect(yaml.Unmarshal([]byte(text), crd)).To(Succeed())
		for _, version := range crd.Spec.Versions {
			all[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] = version.Schema.OpenAPIV3Schema
		}
	}
	var kinds []kind
	g.Expect(yaml.UnmarshalStrict([]byte(read(g, "testdata/schemas.yaml")), &kinds)).To(Succeed())
	for _, k := range kinds {
		in := func(name string, props apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
			return apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{name}, Properties: map[string]apiextensionsv1.JSONSchemaProps{name: props}}
		}
		spec := k.Spec
		if strings.HasSuffix(k.Kind, "Template") {
			spec = in("template", in("spec", spec))
		}
		whole := in("spec", spec)
		all[schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)] = &whole
	}
	return all
}

// checks expects an object to fit its schema. A part of an object, for a server-side apply, lacks required fields.
func checks(g *WithT, schemas map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps, object *unstructured.Unstructured) {
	g.THelper()
	gvk := object.GroupVersionKind()
	g.Expect(schemas).To(HaveKey(gvk))
	internal := &apiextensions.JSONSchemaProps{}
	g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schemas[gvk], internal, nil)).To(Succeed())
	structural, err := structuralschema.NewStructural(internal)
	g.Expect(err).NotTo(HaveOccurred())
	unknown := pruning.PruneWithOptions(object.DeepCopy().Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	g.Expect(unknown).To(BeEmpty(), "%s has unknown fields", gvk.Kind)
	validator, _, err := validation.NewSchemaValidator(internal)
	g.Expect(err).NotTo(HaveOccurred())
	wrong := validation.ValidateCustomResource(nil, object.Object, validator)
	if _, whole, _ := unstructured.NestedString(object.Object, "spec", "clusterName"); gvk.Kind == "MachineDeployment" && !whole {
		wrong = slices.DeleteFunc(wrong, func(e *field.Error) bool { return e.Type == field.ErrorTypeRequired })
	}
	g.Expect(wrong).To(BeEmpty(), gvk.Kind)
}

func expectNoFindings(g *WithT, name, example string) {
	g.THelper()
	flags := settings.Flags{}
	by, err := flags.Offline()
	g.Expect(err).NotTo(HaveOccurred())
	set := &manifest.Set{}
	g.Expect(set.Parse(name, []byte(example))).To(Succeed())
	report, err := lint.Lint(set, lint.Settings{Policy: by.Config.Rules, Origin: by.Origin})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Findings).To(BeEmpty())
}

// expectFields expects each fact of values to be a field in the schema of its kind.
func expectFields(g *WithT, schemas map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps, values string) {
	g.THelper()
	var shown facts
	g.Expect(yaml.Unmarshal([]byte(values), &shown)).To(Succeed())
	for _, fact := range shown.Facts {
		known := false
		for gvk, of := range schemas {
			if gvk.Group != fact.Group || gvk.Kind != fact.Kind {
				continue
			}
			at := *of
			for part := range strings.SplitSeq(fact.FieldPath, ".") {
				g.Expect(at.Properties).To(HaveKey(part), fact.FieldPath)
				at = at.Properties[part]
			}
			known = true
		}
		g.Expect(known).To(BeTrue(), "no schema of %s", fact.Kind)
	}
}
