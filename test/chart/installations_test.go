// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/fleet"
)

// installations returns the values of the characteristic installations, by name.
func installations(t *testing.T) map[string]values {
	t.Helper()
	Expect := NewWithT(t).Expect
	files, err := filepath.Glob(filepath.Join("testdata", "installations", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	all := map[string]values{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		over := values{}
		Expect(yaml.UnmarshalStrict(content, &over)).To(Succeed(), file)
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = over
	}
	Expect(all).To(HaveKey("default"))
	return all
}

// Each value has its documented effect: reviews read what each installation changes. Of the default installation they read the workload
// and the rights; other tests prove its webhooks.
func TestInstallationsRenderAsReviewed(t *testing.T) {
	standard := renderWithHook(t, nil)
	reviewed := slices.Concat(rights(standard), ofKinds(standard, "Deployment", "PodDisruptionBudget", "Service"))
	fleet.Golden(t, "installations/default", changes(t, nil, reviewed))
	for name, over := range installations(t) {
		if name != "default" {
			t.Run(name, func(t *testing.T) {
				fleet.Golden(t, "installations/"+name, changes(t, standard, renderWithHook(t, over)))
			})
		}
	}
}

// The program and the pre-delete hook have the rights that the values require, and the hook has the arguments: reviews read what each case
// changes. A right to Secrets without a name is a right to kubeconfigs.
func TestRightsRenderAsReviewed(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "rights.yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var cases []struct {
		Name   string `json:"name"`
		Values values `json:"values"`
	}
	NewWithT(t).Expect(yaml.UnmarshalStrict(content, &cases)).To(Succeed())
	standard, text := rights(renderWithHook(t, nil)), ""
	for _, tc := range cases {
		text += "# " + tc.Name + "\n" + changes(t, standard, rights(renderWithHook(t, tc.Values)))
	}
	fleet.Golden(t, "rights", text)
}

func rights(objects []unstructured.Unstructured) []unstructured.Unstructured {
	return ofKinds(objects, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Job")
}

func ofKinds(objects []unstructured.Unstructured, kinds ...string) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o unstructured.Unstructured) bool { return !slices.Contains(kinds, o.GetKind()) })
}

// changes returns what changes between two renderings, as a merge patch in YAML: a new object is whole, and a deleted object is null.
func changes(t *testing.T, from, to []unstructured.Unstructured) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	patch, err := jsonpatch.CreateMergePatch(reviewable(t, from), reviewable(t, to))
	Expect(err).NotTo(HaveOccurred())
	text, err := yaml.JSONToYAML(patch)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// reviewable returns objects as JSON, by kind and name, and without the metadata that all objects have.
func reviewable(t *testing.T, objects []unstructured.Unstructured) []byte {
	t.Helper()
	all := map[string]any{}
	for _, object := range objects {
		name := object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/", "/") + object.GetName()
		object = *object.DeepCopy()
		for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
			unstructured.RemoveNestedField(object.Object, path...)
		}
		all[name] = short("", object.Object)
	}
	raw, err := json.Marshal(all)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

var version = regexp.MustCompile(`:v\d+\.\d+\.\d+$`)

// short returns a copy of a field without common labels, long texts and the version of the chart. A list whose items can be named becomes
// a map, because a merge patch replaces lists as a whole.
func short(field string, value any) any {
	switch v := value.(type) {
	case string:
		if len(v) > 1000 {
			return v[:20] + "…"
		}
		return version.ReplaceAllString(v, ":APPVERSION")
	case map[string]any:
		all := map[string]any{}
		for key, item := range v {
			if field != "labels" || !strings.HasPrefix(key, "app.kubernetes.io/") && key != "helm.sh/chart" {
				all[key] = short(key, item)
			}
		}
		if labels, has := all["labels"].(map[string]any); has && len(labels) == 0 {
			delete(all, "labels")
		}
		return all
	case []any:
		named, plain := map[string]any{}, []any{}
		for _, item := range v {
			name, content := nameOf(field, item)
			if before, twice := named[name]; twice {
				content = fmt.Sprint(before, " and ", content)
			}
			named[name] = content
			plain = append(plain, short("", item))
		}
		if _, unnamed := named[""]; unnamed || len(v) == 0 {
			return plain
		}
		return named
	}
	return value
}

// nameOf returns the name of an item of a list, and the rest of it. The name of a rule is all of it.
func nameOf(field string, item any) (name string, content any) {
	switch item := item.(type) {
	case string:
		if field == "args" {
			flag, value, _ := strings.Cut(item, "=")
			return flag, value
		}
	case map[string]any:
		if field == "rules" && item["verbs"] != nil {
			for _, key := range []string{"apiGroups", "resources", "nonResourceURLs", "resourceNames", "verbs"} {
				name += strings.TrimPrefix(fmt.Sprint(item[key], " "), "<nil> ")
			}
			return strings.TrimSpace(name), "granted"
		}
		for _, key := range []string{"name", "alert"} {
			if name, is := item[key].(string); is {
				return name, short("", item)
			}
		}
	}
	return "", nil
}
