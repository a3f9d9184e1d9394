// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// The chart accepts every example of values in docs/configuration.md.
func TestExamplesOfValues(t *testing.T) {
	Expect := NewWithT(t).Expect
	_, tasks, found := strings.Cut(document(t, "docs", "configuration.md"), "\n## Values by task\n")
	Expect(found).To(BeTrue())
	tasks, _, _ = strings.Cut(tasks, "\n## ")
	examples := 0
	for _, example := range markdown.Parse([]byte(tasks)).Blocks {
		if example.Language != "yaml" {
			continue
		}
		examples++
		over := values{}
		Expect(yaml.UnmarshalStrict([]byte(example.Text), &over)).To(Succeed())
		_, err := render(t, over)
		Expect(err).NotTo(HaveOccurred(), example.Text)
	}
	Expect(examples).To(BeNumerically(">", 10))
}

// The chart accepts the values of the manifests for Argo CD and Flux.
func TestValuesForGitOpsTools(t *testing.T) {
	Expect := NewWithT(t).Expect
	var found []string
	for _, example := range markdown.Parse([]byte(document(t, "docs", "gitops.md"))).Blocks {
		if example.Language != "yaml" {
			continue
		}
		manifests, err := controlplane.DecodeObjects(example.Text)
		Expect(err).NotTo(HaveOccurred())
		for _, manifest := range manifests {
			for _, path := range [][]string{{"spec", "source", "helm", "valuesObject"}, {"spec", "values"}} {
				if over, has, _ := unstructured.NestedMap(manifest.Object, path...); has {
					found = append(found, manifest.GetKind())
					_, err := render(t, over)
					Expect(err).NotTo(HaveOccurred(), manifest.GetKind())
				}
			}
		}
	}
	Expect(found).To(ConsistOf("Application", "HelmRelease"))
}

// The annotations for Artifact Hub are true: the image is the rendered image, and the prerelease flag matches the version.
func TestArtifactHub(t *testing.T) {
	Expect := NewWithT(t).Expect
	chart := struct {
		Version     string            `json:"version"`
		Annotations map[string]string `json:"annotations"`
	}{}
	Expect(yaml.Unmarshal([]byte(document(t, "deploy", "chart", "heirloom", "Chart.yaml")), &chart)).To(Succeed())
	about := func(name string) string {
		Expect(chart.Annotations).To(HaveKey("artifacthub.io/" + name))
		return chart.Annotations["artifacthub.io/"+name]
	}

	var images []struct{ Name, Image string }
	Expect(yaml.Unmarshal([]byte(about("images")), &images)).To(Succeed())
	var named []any
	for _, image := range images {
		named = append(named, image.Image)
	}
	objects := renderWithHook(t, everythingThatHasAnImage())
	rendered := map[any]bool{}
	for _, object := range objects {
		raw, err := json.Marshal(object.Object)
		Expect(err).NotTo(HaveOccurred())
		for _, image := range regexp.MustCompile(`"image":"([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
			rendered[image[1]] = true
		}
	}
	Expect(rendered).To(HaveLen(len(named)))
	for _, image := range named {
		Expect(rendered).To(HaveKey(image))
	}

	var changes []struct{ Kind, Description string }
	Expect(yaml.Unmarshal([]byte(about("changes")), &changes)).To(Succeed())
	Expect(changes).NotTo(BeEmpty())
	for _, change := range changes {
		Expect(change.Kind).To(BeElementOf("added", "changed", "deprecated", "removed", "fixed", "security"))
		Expect(change.Description).NotTo(BeEmpty())
	}
	// Versions before 1 are unstable.
	Expect(about("prerelease")).To(Equal(strconv.FormatBool(strings.Contains(chart.Version, "-") || strings.HasPrefix(chart.Version, "0."))))
	for _, object := range objects {
		Expect(object.GetKind()).NotTo(Equal("CustomResourceDefinition"), "the annotations list none")
	}
}

// everythingThatHasAnImage returns everything, with the chart's own image.
func everythingThatHasAnImage() values {
	all := everything()
	delete(all, "image")
	delete(all, "global")
	return all
}

// document returns a file of the repository.
func document(t *testing.T, path ...string) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(content)
}
