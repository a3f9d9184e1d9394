// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// Helm refuses invalid values, with a message that names the value.
func TestWrongValuesAreRefused(t *testing.T) {
	var cases []struct {
		Values values `json:"values"`
		Says   string `json:"says"`
	}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(document(t, "test/chart/testdata/refused.yaml")), &cases)).To(Succeed())
	for _, tc := range cases {
		t.Run(tc.Says, func(t *testing.T) {
			_, err := render(t, tc.Values)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.Says)))
		})
	}
}

// Helm accepts exactly the URLs that the program accepts.
func TestURLsAreThoseOfTheProgram(t *testing.T) {
	for _, url := range []string{
		"https://h", "https://h/", "https://h.example.com:8443/a/b", "https://[2001:db8::1]:9444", "https://h/.well-known/x", "https://h/...", "https://h/a@b",
		"http://h", "h", "https://", "https:///a", "https://u@h", "https://u:p@h", "https://h?", "https://h?a=b", "https://h#", "https://h/a#b",
		"https://h//a", "https://h/a//", "https://h/./a", "https://h/a/..", "https://h/%41", "https://h:port", "https://h /",
	} {
		t.Run(url, func(t *testing.T) {
			_, err := render(t, values{"workloadClusters": values{"webhookURL": url}})
			_, refused := webhook.BaseURL(url)
			NewWithT(t).Expect(err == nil).To(Equal(refused == nil), "helm: %v; the program: %v", err, refused)
		})
	}
}

// Helm accepts exactly the facts that the program accepts.
func TestFactsAreThoseOfTheProgram(t *testing.T) {
	const machines, infra = "cluster.x-k8s.io/Machine", "infrastructure.cluster.x-k8s.io/AcmeMachine"
	facts := [][3]string{
		{machines, "spec.failureDomain", "zone"}, {machines, "metadata.labels['a/b']", "zone"}, {machines, "spec.version", "v"}, {machines, "status.failureDomain", "zone"},
		{infra, "spec.a_b.c1", "x"}, {infra, "spec.failureDomain", "x"}, {infra, "metadata.annotations['a']", "x"}, {infra, ".spec", "x"}, {infra, "spec.", "x"}, {infra, "spec.x[0]", "x"},
		{infra, "metadata.finalizers['a']", "x"}, {infra, "metadata.labels['']", "x"}, {infra, "metadata.labels[a]", "x"},
		{"cluster.x-k8s.io/MachineSet", "spec.x", "x"}, {"metal3.io/BareMetalHost", "spec.x", "x"}, {"extra.example.com/Host", "spec.x", "x"}, {"bootstrap.cluster.x-k8s.io/AcmeConfig", "spec.x", "x"},
	}
	labels := slices.Concat(inherit.NeverKeys, inherit.FamilyLabels, inherit.TopologyLabels,
		[]string{"a", "machinedeployment.clusters.x-k8s.io/x", "a.heirloom.dev/b", "notheirloom.dev/b", "node.cluster.x-k8s.io/a", "node-role.kubernetes.io/a", inherit.RecordLabel})
	for _, domain := range slices.Concat(inherit.NeverDomains, inherit.BookkeepingDomains, inherit.BookkeepingFamilies) {
		labels = append(labels, domain+"/a", "x."+domain+"/a")
	}
	for _, label := range labels {
		facts = append(facts, [3]string{infra, "spec.x", label})
	}
	for _, fact := range facts {
		group, kind, _ := strings.Cut(fact[0], "/")
		_, err := render(t, values{"additionalProviderGroups": []any{"extra.example.com"},
			"facts": []any{values{"group": group, "kind": kind, "fieldPath": fact[1], "label": fact[2]}}})
		options, flags := newFlags()
		NewWithT(t).Expect(flags.Parse([]string{"--additional-provider-groups=extra.example.com", "--node-fact=" + kind + "." + group + ":" + fact[1] + "=" + fact[2]})).To(Succeed())
		_, refused := options.Complete()
		NewWithT(t).Expect(err == nil).To(Equal(refused == nil), "%v: helm: %v; the program: %v", fact, err, refused)
	}
}

// labelled is the deprecated spelling of labeled.
func TestEnrollmentKeepsItsOldSpelling(t *testing.T) {
	NewWithT(t).Expect(arguments(t, values{"enrollment": "labelled"})).To(Equal(arguments(t, values{"enrollment": "labeled"})))
}

// The schema has the cipher suites of the program.
func TestCipherSuitesAreThoseOfTheProgram(t *testing.T) {
	var schema map[string]any
	NewWithT(t).Expect(json.Unmarshal([]byte(document(t, "deploy/chart/heirloom/values.schema.json")), &schema)).To(Succeed())
	items, _, err := unstructured.NestedMap(schema, "properties", "tls", "properties", "cipherSuites", "items")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(items["enum"]).To(ConsistOf(cliflag.TLSCipherPossibleValues()))
}

// The chart accepts the values on the pages: each example by task, of features and providers, and the values in the manifests for Argo CD
// and Flux.
func TestDocumentedValuesAreAccepted(t *testing.T) {
	Expect := NewWithT(t).Expect
	_, tasks, _ := strings.Cut(document(t, "docs/configuration.md"), "\n## Values by task\n")
	tasks, _, _ = strings.Cut(tasks, "\n## ")
	texts := []string{tasks, document(t, "docs/facts.md"), document(t, "docs/required-keys.md")}
	providers, err := filepath.Glob(inRepository(t, "docs/providers/*.md"))
	Expect(err).NotTo(HaveOccurred())
	for _, page := range providers {
		texts = append(texts, document(t, "docs/providers/"+filepath.Base(page)))
	}
	var all []values
	for _, text := range texts {
		for _, example := range markdown.Parse([]byte(text)).Blocks {
			if example.Language == "yaml" {
				over := values{}
				Expect(yaml.UnmarshalStrict([]byte(example.Text), &over)).To(Succeed())
				all = append(all, over)
			}
		}
	}
	Expect(len(all)).To(BeNumerically(">", 15))
	kinds := map[string]bool{}
	for _, example := range markdown.Parse([]byte(document(t, "docs/gitops.md"))).Blocks {
		if example.Language != "yaml" {
			continue
		}
		manifests, err := controlplane.DecodeObjects(example.Text)
		Expect(err).NotTo(HaveOccurred())
		for _, manifest := range manifests {
			for _, path := range [][]string{{"spec", "source", "helm", "valuesObject"}, {"spec", "values"}} {
				if over, has, _ := unstructured.NestedMap(manifest.Object, path...); has {
					kinds[manifest.GetKind()] = true
					all = append(all, over)
				}
			}
		}
	}
	Expect(kinds).To(And(HaveKey("Application"), HaveKey("HelmRelease")))
	for _, over := range all {
		_, err := render(t, over)
		Expect(err).NotTo(HaveOccurred(), "%v", over)
	}
}

// Artifact Hub shows the image that the chart runs.
func TestArtifactHubShowsTheImage(t *testing.T) {
	var annotated []string
	about := document(t, "deploy/chart/heirloom/Chart.yaml")
	for _, image := range regexp.MustCompile(`(?m)^      image: (.*)$`).FindAllStringSubmatch(about, -1) {
		annotated = append(annotated, image[1])
	}
	raw, err := json.Marshal(renderWithHook(t, nil))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	rendered := map[string]bool{}
	for _, image := range regexp.MustCompile(`"image":"([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
		rendered[image[1]] = true
	}
	NewWithT(t).Expect(rendered).To(And(HaveLen(len(annotated)), HaveKey(annotated[0])))
}

// The chart and the pages name the oldest Kubernetes of the tests.
func TestOldestKubernetes(t *testing.T) {
	Expect := NewWithT(t).Expect
	oldest := regexp.MustCompile(`k8s\.io/kubernetes v(1\.\d+)\.`).FindStringSubmatch(document(t, "hack/tools/kubernetes-oldest/go.mod"))[1]
	Expect(document(t, "deploy/chart/heirloom/Chart.yaml")).To(MatchRegexp(`(?m)^kubeVersion: ['"]>=%s\.0-0['"]`, oldest))
	for _, page := range []string{"README.md", "docs/getting-started.md", "deploy/chart/heirloom/README.md"} {
		Expect(document(t, page)).To(ContainSubstring("Kubernetes "+oldest), page)
	}
	Expect(document(t, "docs/support.md")).To(MatchRegexp(`(?m)^\| Kubernetes of the management cluster \| %s or later`, oldest))
}
