// SPDX-License-Identifier: Apache-2.0

// Package conformance tests the program against the table of rules: testdata/cases.yaml has the cases of each row, testdata/content.yaml
// the content that owners declare and children get, and testdata/manifests.yaml the objects.
package conformance

import (
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/rules"
)

// table is the content of testdata.
type table struct {
	Places map[string]place
	Cases  []conformanceCase
	// content has the states of each content.
	content   map[string][]content
	manifests string
}

// place has the path of each column for which an object has a field.
type place map[string]string

// content is the content of an object by column.
type content map[string]any

// conformanceCase is a case of a row, or of several rows, of the table of rules.
type conformanceCase struct {
	Rules []int
	// Home means that the Cluster is the management cluster itself, so that its Nodes are there.
	Home   bool
	Owners []struct{ Object, At, Declares string }
	// Children are created in this order.
	Children []childCase
}

// childCase is a child, and the content that it gets, by place.
type childCase struct {
	Object string
	Gets   map[string]string
	// Admission means that only admission reaches the child.
	Admission bool
}

// TestMain sets the variable with which client-go ends a program that changes an object of a cache: Heirloom reads many objects from its
// caches without copies. client-go reads the variable when a process starts.
func TestMain(m *testing.M) {
	const detector = "KUBE_CACHE_MUTATION_DETECTOR"
	if os.Getenv(detector) == "" {
		_ = os.Setenv(detector, "true")
		panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	}
	os.Exit(m.Run())
}

// TestConformance tests the loop alone and admission alone, with the newest releases of Cluster API; with -short, only with the newest.
// Both give a child the same content and the same managed fields.
func TestConformance(t *testing.T) {
	releases, err := controlplane.Releases(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	if testing.Short() {
		releases = releases[len(releases)-1:]
	}
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			crds, webhooks := readCRDs(t, release.CRDPaths), renderWebhooks(t)
			loop := &play{name: "loop", table: readTable(t)}
			synctest.Test(t, func(t *testing.T) { loop.run(t.Context(), newWorld(t, crds, nil)) })
			admission := &play{name: "admission", table: loop.table, byLoop: loop}
			synctest.Test(t, func(t *testing.T) { admission.run(t.Context(), newWorld(t, crds, webhooks)) })
		})
	}
}

// TestEachRuleHasItsCases holds the cases to the table of rules: the children of a row get the columns that the row carries, and no other.
func TestEachRuleHasItsCases(t *testing.T) {
	of := readTable(t)
	for _, rule := range rules.All() {
		got := map[string]bool{}
		for _, c := range of.Cases {
			if slices.Contains(c.Rules, rule.Number) {
				maps.Copy(got, of.columnsOf(c))
				got["a case"] = true
			}
		}
		if !got["a case"] {
			t.Errorf("rule %d has no case", rule.Number)
		}
		for column := range carriedBy(rule.Number) {
			if !got[column] {
				t.Errorf("rule %d carries %s, and no child gets any", rule.Number, column)
			}
		}
	}
	for _, c := range of.Cases {
		for column := range of.columnsOf(c) {
			if !carriedBy(c.Rules...)[column] {
				t.Errorf("rules %v do not carry %s, and a child gets some", c.Rules, column)
			}
		}
	}
}

// TestEachFieldHasContent expects content for each in-place field of the program, from an owner or from a user.
func TestEachFieldHasContent(t *testing.T) {
	of := readTable(t).content
	fields := merge(of["declared"][0], of["mine"][0])
	all, ofWorkers := rules.FieldNames()
	for _, name := range slices.Concat(all, ofWorkers) {
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, strings.Split(name, ".")...); !found {
			t.Errorf("no content has %s", name)
		}
	}
}

// carriedBy returns the columns that rules carry.
func carriedBy(numbers ...int) map[string]bool {
	carried := map[string]bool{}
	for _, rule := range rules.All() {
		for column, flow := range map[string]rules.Flow{
			"labels": rule.Labels, "annotations": rule.Annotations, "taints": rule.Taints, "fields": rule.Fields,
		} {
			if flow.Carried && slices.Contains(numbers, rule.Number) {
				carried[column] = true
			}
		}
	}
	return carried
}

// columnsOf returns the columns of the table of rules of which the children get content in the first state.
func (of *table) columnsOf(c conformanceCase) map[string]bool {
	got := map[string]bool{}
	for _, child := range c.Children {
		for at, gets := range child.Gets {
			for column := range of.Places[at] {
				if of.content[gets][0][column] == nil {
					continue
				}
				switch column {
				case "annotations":
					got[column] = true
					if list, _ := of.content[gets][0][column].(map[string]any); list[taint.AlwaysAnnotation] != nil {
						got["taints"] = true
					}
				case "labels":
					got[column] = true
				case "tracking":
				case "taints", "nodeTaints":
					got["taints"] = true
				default:
					got["fields"] = true
				}
			}
		}
	}
	return got
}

func readTable(t *testing.T) *table {
	t.Helper()
	Expect := NewWithT(t).Expect
	of := &table{}
	for name, into := range map[string]any{"cases": of, "content": &of.content} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.UnmarshalStrict(text, into)).To(Succeed())
	}
	text, err := os.ReadFile("testdata/manifests.yaml")
	Expect(err).NotTo(HaveOccurred())
	of.manifests = string(text)
	return of
}
