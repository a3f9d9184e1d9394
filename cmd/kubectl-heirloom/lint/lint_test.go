// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
)

// lintText judges a text by the defaults.
func lintText(g *WithT, text string) *Report {
	g.THelper()
	set := &manifest.Set{}
	g.Expect(set.Parse("a.yaml", []byte(text))).To(Succeed())
	report, err := Lint(set, Settings{})
	g.Expect(err).NotTo(HaveOccurred())
	return report
}

// found returns the findings in short form, "<rule> <object> <field>".
func found(r *Report) []string {
	all := []string{}
	for _, f := range r.Findings {
		all = append(all, f.Rule+" "+f.Object+" "+f.Field)
	}
	return all
}

const pool = "node.cluster.x-k8s.io/pool"

func TestEveryKind(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		for kind, spec := range map[string]string{
			"MachineDeployment": "spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}",
			"MachineSet":        "spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}",
			"MachinePool":       "spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}",
			"Cluster":           "spec: {topology: {class: x, classRef: {name: x}, workers: {machineDeployments: [{class: w, name: np, metadata: {labels: {a: b}}}]}}}",
			"ClusterClass":      "spec: {workers: {machinePools: [{class: w, metadata: {labels: {a: b}}}]}}",
			"ControlPlane":      "spec: {machineTemplate: {metadata: {labels: {a: b}}}}",
		} {
			t.Run(version+" "+kind, func(t *testing.T) {
				g, group := NewWithT(t), "cluster.x-k8s.io"
				if kind == "ClusterClass" && version == "v1beta1" {
					spec = "spec: {workers: {machinePools: [{class: w, template: {metadata: {labels: {a: b}}}}]}}"
				}
				if kind == "ControlPlane" {
					group, kind = "controlplane.cluster.x-k8s.io", "OddControlPlane"
				}
				report := lintText(g, fmt.Sprintf("apiVersion: %s/%s\nkind: %s\nmetadata: {name: o, labels: {cluster.x-k8s.io/cluster-name: c}}\n%s\n", group, version, kind, spec))
				g.Expect(report.Findings).To(HaveLen(1))
				g.Expect(report.Findings[0].Rule).To(Equal(notForNodes))
				g.Expect(report.Findings[0].Line).To(Equal(4))
				g.Expect(report.Findings[0].Field).To(HaveSuffix("metadata.labels[a]"))
			})
		}
	}
}

func TestAMachineDeclaresForItsNode(t *testing.T) {
	g := NewWithT(t)
	g.Expect(found(lintText(g, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata:
  name: m
  labels: {a: b, `+pool+`: x, app.kubernetes.io/managed-by: Helm}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec: {clusterName: c}
`))).To(Equal([]string{"HL006 Machine m metadata.labels[a]"}))
}

// TestTheClassMayBeElsewhere checks that a topology is judged without its class, and a class without a Cluster.
func TestTheClassMayBeElsewhere(t *testing.T) {
	g := NewWithT(t)
	cluster := `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s}
spec:
  topology:
    classRef: {name: x}
    controlPlane: {metadata: {labels: {a: b, ` + pool + `: x}}}
    workers: {machinePools: [{class: %s, name: np, metadata: {labels: {c: d}}}]}
---`
	report := lintText(g, fmt.Sprintf(cluster, "one", "w")+fmt.Sprintf(cluster, "two", "other"))
	g.Expect(found(report)).To(Equal([]string{
		"HL006 Cluster one spec.topology.controlPlane.metadata.labels[a]",
		"HL006 Cluster one spec.topology.workers.machinePools[np].metadata.labels[c]",
		"HL006 Cluster two spec.topology.controlPlane.metadata.labels[a]",
		"HL006 Cluster two spec.topology.workers.machinePools[np].metadata.labels[c]",
	}))
}

// TestTheSameNameTwice checks that overlays and samples of the same name are each judged.
func TestTheSameNameTwice(t *testing.T) {
	g := NewWithT(t)
	one := "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineSet\nmetadata: {name: o}\nspec: {clusterName: c, template: {metadata: {labels: {%s: b}}}}\n---\n"
	report := lintText(g, fmt.Sprintf(one, "a")+fmt.Sprintf(one, "b"))
	g.Expect(found(report)).To(Equal([]string{
		"HL006 MachineSet o spec.template.metadata.labels[a]", "HL006 MachineSet o spec.template.metadata.labels[b]",
	}))
	g.Expect(report.Findings[1].Line).To(Equal(9))
}

// TestStoredObjects judges what kubectl get prints: objects with owners and UIDs.
func TestStoredObjects(t *testing.T) {
	g := NewWithT(t)
	report := lintText(g, `
apiVersion: v1
kind: List
items:
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: MachineDeployment
  metadata: {name: md, uid: u1}
  spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: MachineSet
  metadata:
    name: ms
    uid: u2
    ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: md, uid: u1, controller: true}]
  spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}
`)
	g.Expect(found(report)).To(Equal([]string{
		"HL006 MachineDeployment md spec.template.metadata.labels[a]", "HL006 MachineSet ms spec.template.metadata.labels[a]",
	}))
}

func TestOtherKindsAreSkipped(t *testing.T) {
	g := NewWithT(t)
	report := lintText(g, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\na: b\n---\n[1, 2]\n---\napiVersion: cluster.x-k8s.example/v1\nkind: Cluster\n")
	g.Expect(report.Objects).To(BeZero())
	g.Expect(report.Findings).To(BeEmpty())
	g.Expect(report.Worst()).To(BeEmpty())
}

func TestOtherTemplatesAreSkipped(t *testing.T) {
	g := NewWithT(t)
	g.Expect(lintText(g, "kind: {{ .a }}\n---\napiVersion: v1\nkind: {{ .a }}\n").Findings).To(BeEmpty())
	g.Expect(lintText(g, "apiVersion: cluster.x-k8s.io/v1beta2\nkind: {{ .a }}\n").Findings).To(HaveLen(1))
}

// TestVariablesElsewhere checks that a variable excuses only the value that it stands for, and not an error elsewhere in the object.
func TestVariablesElsewhere(t *testing.T) {
	g := NewWithT(t)
	const command = "spec: {kubeadmConfigSpec: {preKubeadmCommands: ['ls ${HOME}']}, machineTemplate: {metadata: {labels: {rack: %s}}}}\n"
	const object = "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nmetadata: {name: cp}\n"
	g.Expect(found(lintText(g, object+fmt.Sprintf(command, "7")))).To(Equal([]string{"HL016 KubeadmControlPlane cp spec.machineTemplate.metadata.labels"}))
	g.Expect(found(lintText(g, object+fmt.Sprintf(command, `"7"`)))).To(BeEmpty())

	const machine = "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Machine\nmetadata: {name: m, annotations: {run: '${HOME}'}}\nspec: {nodeDrainTimeout: %s}\n"
	g.Expect(found(lintText(g, fmt.Sprintf(machine, "soon")))).To(Equal([]string{"HL016 Machine m "}))
	g.Expect(found(lintText(g, fmt.Sprintf(machine, "'${SOON}'")))).To(Equal([]string{"HL017 Machine m "}))
}

// TestNamespaces checks in which namespace an object is that names none: in that of --namespace, or else in the one that all others name.
func TestNamespaces(t *testing.T) {
	content, err := os.ReadFile("testdata/HL009.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cluster, class, _ := strings.Cut(string(content), "---\n")
	without := func(text string) string { return strings.Replace(text, "  namespace: fleet\n", "", 1) }
	const other = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineSet\nmetadata: {name: ms, namespace: other}\n"
	for name, c := range map[string]struct {
		text, namespace string
		lost            bool
	}{
		"both name it":         {text: cluster + "---\n" + class, lost: true},
		"the class does not":   {text: cluster + "---\n" + without(class), lost: true},
		"the Cluster does not": {text: without(cluster) + "---\n" + class, lost: true},
		"neither does":         {text: without(cluster) + "---\n" + without(class), lost: true},
		"-n is the same":       {text: cluster + "---\n" + without(class), namespace: "fleet", lost: true},
		"-n is another":        {text: cluster + "---\n" + without(class), namespace: "other"},
		"-n for both":          {text: without(cluster) + "---\n" + without(class), namespace: "other", lost: true},
		"nobody knows":         {text: cluster + "---\n" + without(class) + other},
		"-n says it":           {text: cluster + "---\n" + without(class) + other, namespace: "fleet", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, set := NewWithT(t), &manifest.Set{}
			g.Expect(set.Parse("a.yaml", []byte(c.text))).To(Succeed())
			report, err := Lint(set, Settings{Namespace: c.namespace})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Rule == listReplaced })).To(Equal(c.lost), "%v", report.Findings)
		})
	}
}

func TestSettingsDecide(t *testing.T) {
	g := NewWithT(t)
	g.Expect(lintText(g, "").Summary()).To(Equal(
		"0 errors, 0 warnings and 0 notes in 0 objects. Judged by the defaults. --values or --server-flags give the settings of your server."))
	report := lintFile(g, "testdata/HL006-not.yaml")
	g.Expect(report.Summary()).To(HaveSuffix("in 1 object. Judged by --server-flags."))
	table := report.Table(true)
	g.Expect(table.ColumnDefinitions).To(HaveLen(7))
	g.Expect(strings.ToLower(string(ruleOf(refusedTaint).Severity))).To(Equal("error"))
}

// TestTheOrderDoesNotMatter judges a MachineDeployment of a topology before its Cluster.
func TestTheOrderDoesNotMatter(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("testdata/HL015.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(content), "---\n")
	there := found(lintText(g, string(content)))
	slices.Reverse(documents)
	back := found(lintText(g, strings.Join(documents, "---\n")))
	g.Expect(back).To(ConsistOf(there))
}
