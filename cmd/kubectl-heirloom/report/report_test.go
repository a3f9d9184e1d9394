// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// reportOn reports on the Clusters of the tree's tests. dev's Nodes cannot be read, and "gone" does not exist.
func reportOn(t *testing.T, required ...Required) *Report {
	t.Helper()
	live := fleet.Server(fleet.Objects(t, "../tree/testdata/fleet.yaml")...).Build()
	w := fleet.World(t, live)
	w.Nodes = func(_ context.Context, cluster types.NamespacedName) (client.Reader, error) {
		if cluster.Name != "prod" {
			return nil, errors.New("no route to host")
		}
		return live, nil
	}
	prod := types.NamespacedName{Namespace: "fleet", Name: "prod"}
	trees := w.Trees(t.Context(), []types.NamespacedName{{Namespace: "fleet", Name: "dev"}, {Namespace: "fleet", Name: "gone"}, prod})
	return New(trees, map[types.NamespacedName]string{prod: "policy"}, required)
}

// text is the report as people see it.
func text(t *testing.T, r *Report, wide bool) string {
	t.Helper()
	var out bytes.Buffer
	NewWithT(t).Expect(printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(r.Table(wide), &out)).To(Succeed())
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(append(lines, r.Sentences(wide)...), "\n") + "\n"
}

func TestReport(t *testing.T) {
	g := NewWithT(t)
	r := reportOn(t)
	fleet.Golden(t, "narrow", text(t, r, false))
	for line := range strings.Lines(text(t, r, false)) {
		g.Expect(len([]rune(line))).To(BeNumerically("<=", 101), line)
	}
	fleet.Golden(t, "wide", text(t, r, true))
	var out bytes.Buffer
	g.Expect(r.CSV(&out)).To(Succeed())
	fleet.Golden(t, "csv", out.String())
	g.Expect(r.Unread()).To(BeTrue())
}

// A program gets every number, also those that are 0.
func TestJSON(t *testing.T) {
	g, row := NewWithT(t), map[string]any{}
	raw, err := json.Marshal(reportOn(t).Rows[3])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(raw, &row)).To(Succeed())
	g.Expect(row["keys"]).To(ContainElement(Equal(map[string]any{"kind": "label", "key": "shift", "status": "missing", "objects": 2.0})))
	delete(row, "keys")
	g.Expect(json.Marshal(row)).To(MatchJSON(`{"namespace": "fleet", "cluster": "prod", "kind": "MachineDeployment", "pool": "prod-ml", "nodes": 7,
		"missing": 4, "differs": 5, "leftAlone": 3, "waiting": 1, "unprotected": 1, "admission": "policy"}`))
}

// Nodes lack a key whether Heirloom would give it to them or not.
func TestRequire(t *testing.T) {
	g := NewWithT(t)
	required, err := ParseRequired([]string{"label=node.cluster.x-k8s.io/pool", "taint=gpu"})
	g.Expect(err).NotTo(HaveOccurred())
	r := reportOn(t, required...)
	fleet.Golden(t, "lacking", text(t, r, false))
	var out bytes.Buffer
	g.Expect(r.CSV(&out)).To(Succeed())
	lines, err := csv.NewReader(&out).ReadAll()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lines).To(ContainElements([]string{"namespace", "cluster", "kind", "pool", "node", "lacks"}, []string{"fleet", "prod", "Node", "", "stranger", "taint gpu"}))

	g.Expect((&Report{Rows: []Row{{Nodes: 2}}, Required: required}).Sentences(false)).To(ConsistOf("No Node lacks a required key (2 Nodes)."))
	for _, wrong := range []string{"cost-center", "field=x", "label=", "label=a=b"} {
		_, err := ParseRequired([]string{wrong})
		g.Expect(err).To(MatchError(ContainSubstring("must be label=KEY, annotation=KEY or taint=KEY")), wrong)
	}
}

// Anyone may choose the name of a field manager, and a spreadsheet would compute it.
func TestNoFormula(t *testing.T) {
	var out bytes.Buffer
	NewWithT(t).Expect((&Report{Rows: []Row{{Error: `=HYPERLINK("https://evil")`}}}).CSV(&out)).To(Succeed())
	NewWithT(t).Expect(out.String()).To(ContainSubstring(`"'=HYPERLINK`))
}

func TestAdmission(t *testing.T) {
	binding := policy.Binding(admissionv1.SchemeGroupVersion)
	configuration := func(webhook string) client.Object {
		return &admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}, Webhooks: []admissionv1.MutatingWebhook{{Name: webhook}},
		}
	}
	for want, objects := range map[string][]client.Object{
		"policy": {binding, configuration("nodes.heirloom.dev")}, "webhook": {configuration("nodes.heirloom.dev")}, "loop": {configuration("another")},
	} {
		server := fake.NewClientBuilder().WithObjects(objects...).Build()
		NewWithT(t).Expect(Admission(t.Context(), server, "heirloom")).To(Equal(want))
	}
	silent := fleet.Server().WithInterceptorFuncs(fleet.Asks(func(string) error { return context.DeadlineExceeded })).Build()
	NewWithT(t).Expect(Admission(t.Context(), silent, "heirloom")).To(Equal(Unknown))
}
