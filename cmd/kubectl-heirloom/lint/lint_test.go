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

// lintText lints a text with the default settings.
func lintText(g *WithT, text, namespace string) *Report {
	g.THelper()
	set := &manifest.Set{}
	g.Expect(set.Parse("a.yaml", []byte(text))).To(Succeed())
	report, err := Lint(set, Settings{Namespace: namespace})
	g.Expect(err).NotTo(HaveOccurred())
	return report
}

// found returns the findings in short form, "<line>: <rule> <object> <field>".
func found(r *Report) []string {
	all := []string{}
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%d: %s %s %s", f.Line, f.Rule, f.Object, f.Field))
	}
	return all
}

// object returns an object of Cluster API with this spec, as YAML.
func object(version, kind, spec string) string {
	return "---\napiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: o, labels: {cluster.x-k8s.io/cluster-name: c}}\nspec: " + spec + "\n"
}

const older, newer, control, pool = "cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2", "controlplane.cluster.x-k8s.io/v1beta2", "node.cluster.x-k8s.io/pool"

func TestFindings(t *testing.T) {
	const template, labels = "{clusterName: c, template: %s}", "{metadata: {labels: {a: b}}}"
	topology := func(name, class string) string {
		return strings.Replace(object(newer, "Cluster", "{topology: {classRef: {name: x}, controlPlane: {metadata: {labels: {a: b, "+pool+": x}}}, "+
			"workers: {machinePools: [{class: "+class+", name: np, metadata: {labels: {c: d}}}]}}}"), "name: o", "name: "+name, 1)
	}
	commands := "{kubeadmConfigSpec: {preKubeadmCommands: ['ls ${HOME}']}, machineTemplate: {metadata: {labels: {rack: %s}}}}"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a Machine declares for its Node": {
			strings.Replace(object(newer, "Machine", "{clusterName: c}"), "labels: {", "annotations: {kubectl.kubernetes.io/a: b}, labels: {a: b, "+pool+": x, app.kubernetes.io/managed-by: Helm, ", 1),
			[]string{"4: HL006 Machine o metadata.labels[a]"},
		},
		"the class is elsewhere": {topology("one", "w") + topology("two", "other"), []string{
			"5: HL006 Cluster one spec.topology.controlPlane.metadata.labels[a]", "5: HL006 Cluster one spec.topology.workers.machinePools[np].metadata.labels[c]",
			"10: HL006 Cluster two spec.topology.controlPlane.metadata.labels[a]", "10: HL006 Cluster two spec.topology.workers.machinePools[np].metadata.labels[c]",
		}},
		"overlays of the same name": {
			object(newer, "MachineSet", fmt.Sprintf(template, labels)) + object(newer, "MachineSet", fmt.Sprintf(template, "{metadata: {labels: {c: d}}}")),
			[]string{"5: HL006 MachineSet o spec.template.metadata.labels[a]", "7: HL018 MachineSet o ", "10: HL006 MachineSet o spec.template.metadata.labels[c]"},
		},
		"what kubectl get prints": {`{apiVersion: v1, kind: List, items: [
			{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {name: md, uid: u1}, spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}},
			{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, metadata: {name: ms, uid: u2, ownerReferences: [
				{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: md, uid: u1, controller: true}]}, spec: {clusterName: c, template: {metadata: {labels: {a: b}}}}},
			{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: m, labels: {a: b}, ownerReferences: [
				{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: u2, controller: true}]}, spec: {clusterName: c}, status: {nodeRef: {name: n}}}]}`,
			[]string{"2: HL006 MachineDeployment md spec.template.metadata.labels[a]", "4: HL006 MachineSet ms spec.template.metadata.labels[a]", "5: HL006 Machine m metadata.labels[a]"},
		},
		"a control plane of which no Cluster is known": {"apiVersion: " + control + "\nkind: X\nmetadata: {name: o}\nspec: {machineTemplate: " + labels + "}\n",
			[]string{"4: HL006 X o spec.machineTemplate.metadata.labels[a]"}},
		"other kinds":                        {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\na: b\n---\n[1, 2]\n" + object("cluster.x-k8s.example/v1", "Cluster", "{}"), []string{}},
		"templates of others":                {"kind: {{ .a }}\n---\napiVersion: v1\nkind: {{ .a }}\n", []string{}},
		"a template of Cluster API":          {"apiVersion: " + newer + "\nkind: {{ .a }}\n", []string{"1: HL017  "}},
		"a variable is the kind":             {object(newer, `"${KIND}"`, "{}"), []string{"2: HL017 ${KIND} o "}},
		"a variable is a list":               {object(newer, "MachineSet", "{clusterName: c, replicas: '${N}', template: {spec: {taints: '${TAINTS}'}}}"), []string{"5: HL017 MachineSet o spec.template.spec.taints"}},
		"a variable is a duration":           {object(older, "Machine", "{nodeDrainTimeout: '${SOON}'}"), []string{"2: HL017 Machine o "}},
		"no duration":                        {object(older, "Machine", "{nodeDrainTimeout: soon, bootstrap: {dataSecretName: '${HOME}'}}"), []string{"2: HL016 Machine o "}},
		"a variable is elsewhere":            {object(control, "KubeadmControlPlane", fmt.Sprintf(commands, "7")), []string{"5: HL016 KubeadmControlPlane o spec.machineTemplate.metadata.labels"}},
		"a variable is elsewhere, all right": {object(control, "KubeadmControlPlane", fmt.Sprintf(commands, `"7"`)), []string{"5: HL006 KubeadmControlPlane o spec.machineTemplate.metadata.labels[rack]"}},
		"a number is text":                   {object(newer, "MachineSet", "{clusterName: c, replicas: '3'}"), []string{"5: HL016 MachineSet o spec.replicas"}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(found(lintText(NewWithT(t), c.text, ""))).To(Equal(c.want)) })
	}
	for kind, spec := range map[string]string{
		newer + " MachineDeployment": fmt.Sprintf(template, labels), newer + " MachineSet": fmt.Sprintf(template, labels), newer + " MachinePool": fmt.Sprintf(template, labels),
		older + " MachineDeployment": fmt.Sprintf(template, labels), older + " MachineSet": fmt.Sprintf(template, labels), older + " MachinePool": fmt.Sprintf(template, labels),
		older + " Cluster":      "{topology: {class: x, workers: {machineDeployments: [{class: w, name: np, metadata: {labels: {a: b}}}]}}}",
		newer + " Cluster":      "{topology: {classRef: {name: x}, workers: {machineDeployments: [{class: w, name: np, metadata: {labels: {a: b}}}]}}}",
		older + " ClusterClass": "{workers: {machinePools: [{class: w, template: " + labels + "}]}}",
		newer + " ClusterClass": "{workers: {machinePools: [{class: w, metadata: {labels: {a: b}}}]}}",
		control + " AnyKind":    "{machineTemplate: " + labels + "}", "controlplane.cluster.x-k8s.io/v1 AnyKind": "{machineTemplate: " + labels + "}",
	} {
		t.Run(kind, func(t *testing.T) {
			version, kind, _ := strings.Cut(kind, " ")
			NewWithT(t).Expect(found(lintText(NewWithT(t), object(version, kind, spec), ""))).To(ConsistOf(MatchRegexp(`^5: HL006 ` + kind + ` o spec\..*metadata\.labels\[a\]$`)))
		})
	}
}

// TestNamespaces checks the namespace of an object without a namespace: the namespace of --namespace, or else the namespace that all other
// objects have.
func TestNamespaces(t *testing.T) {
	content, err := os.ReadFile("testdata/HL009.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cluster, class, _ := strings.Cut(string(content), "---\n")
	without := func(text string) string { return strings.Replace(text, "  namespace: fleet\n", "", 1) }
	other := strings.Replace(object(newer, "MachineSet", "{}"), "name: o", "name: o, namespace: other", 1)
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
			report := lintText(NewWithT(t), c.text, c.namespace)
			NewWithT(t).Expect(slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Rule == listReplaced.ID })).To(Equal(c.lost), "%v", report.Findings)
		})
	}
}

// TestTheOrderDoesNotMatter lints a MachineDeployment of a topology before its Cluster.
func TestTheOrderDoesNotMatter(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("testdata/HL015.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(content), "---\n")
	slices.Reverse(documents)
	back := lintText(g, strings.Join(documents, "---\n"), "").Findings
	g.Expect(back).To(HaveLen(2))
	for _, f := range lintText(g, string(content), "").Findings {
		g.Expect(back).To(ContainElement(HaveField("Message", f.Message)))
	}
}
