// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

const (
	machineDeployment = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: default}
spec:
  clusterName: c
  template:
    metadata:
      labels: {node.cluster.x-k8s.io/team: ml}
`
	clusterClass = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: class, namespace: default}
spec:
  workers:
    machineDeployments:
    - class: a
      metadata:
        labels: {node.cluster.x-k8s.io/tier: gold, node.cluster.x-k8s.io/team: all}
`
	cluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: default}
spec:
  topology:
    classRef: {name: class}
    workers:
      machineDeployments:
      - {name: a, class: a, metadata: {labels: {node.cluster.x-k8s.io/team: ml}}}
`
	newOne = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: new, namespace: default}
spec: {clusterName: c}
`
)

// declaring returns the file of MachineDeployment md with these taints.
func declaring(list string) string {
	annotations := "annotations: {taints.heirloom.dev/always: '" + list + "'}"
	return strings.Replace(machineDeployment, "labels: {node.cluster.x-k8s.io/team: ml}", annotations, 1)
}

// table returns the output of -o table.
func table(result *Result, wide bool) string {
	var text strings.Builder
	for _, row := range result.Table(wide).Rows {
		for _, cell := range row.Cells {
			fmt.Fprintf(&text, "%v   ", cell)
		}
		text.WriteString("\n")
	}
	return regexp.MustCompile(" +\n").ReplaceAllString(text.String(), "\n")
}

func shownBy(g Gomega, result *Result, all bool) string {
	var out bytes.Buffer
	g.Expect(result.Show(genericiooptions.IOStreams{Out: &out, ErrOut: &out}, all)).To(Succeed())
	text := regexp.MustCompile(`\S+/(LIVE|MERGED)-\d+/`).ReplaceAllString(out.String(), "$1/")
	return regexp.MustCompile(`(?m)^((---|\+\+\+) \S+)\t.*$`).ReplaceAllString(text, "$1")
}

// A change of a ClusterClass reaches all its Clusters, down to the Nodes. The declarations of a topology in another file of the same change
// already count.
func TestWhatFilesWrite(t *testing.T) {
	g := NewWithT(t)
	result := small().answer(t, clusterClass, cluster)
	changed := regexp.MustCompile(`(?m)^([^d+-]|---|\+\+\+).*\n`).ReplaceAllString(shownBy(g, result, false), "")
	fleet.Golden(t, "class", changed+table(result, false)+strings.Join(result.Lines(), "\n")+"\n")
	g.Expect(strings.Count(shownBy(g, result, true), "diff -u -N")).To(Equal(1+1+1+1+3+3+3), "every object")
	g.Expect(table(result, true)).To(ContainSubstring("default   Node/m-2   + label node.cluster.x-k8s.io/team=ml   " +
		"Cluster default/c (spec.topology.workers.machineDeployments[a].metadata.labels)\n"))
}

func TestWhatIsPending(t *testing.T) {
	g := NewWithT(t)
	w := small()
	w.objects["md"].(*clusterv1.MachineDeployment).Spec.Template.Labels = map[string]string{"node.cluster.x-k8s.io/team": "ml"}
	w.node(1).Labels["node.cluster.x-k8s.io/team"] = "ml"
	w.node(2).Labels["node.cluster.x-k8s.io/old"] = "x"
	w.node(2).Annotations["cluster.x-k8s.io/labels-from-machine"] = "node.cluster.x-k8s.io/old"
	w.objects["m-1"].SetLabels(map[string]string{"node.cluster.x-k8s.io/team": "web"})
	g.Expect(table(w.answer(t), false)).To(Equal(`MachineSet/ms   + label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
MachineSet/ms   + template label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
Machine/m-0 (+1)   + label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
AcmeMachine/infra-m-0 (+2)   + label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
Machine/m-1   ~ label node.cluster.x-k8s.io/team=ml (was web)   MachineDeployment/md
Node/m-0   + label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
Node/m-1   ~ only the record of entries from the Machine
Node/m-2   - label node.cluster.x-k8s.io/old=x
Node/m-2   + label node.cluster.x-k8s.io/team=ml   MachineDeployment/md
`))
}

// A new object, or an object of a Cluster that does not exist, differs as a whole.
func TestNewObjects(t *testing.T) {
	g := NewWithT(t)
	result := small().answer(t, newOne)
	g.Expect(result.Lines()).To(Equal([]string{"1 MachineDeployment would change."}))
	g.Expect(shownBy(g, result, false)).To(And(ContainSubstring("+kind: MachineDeployment"), Not(MatchRegexp(`(?m)^-[^-]`))))
	result = small().answer(t, strings.Replace(newOne, "clusterName: c", "clusterName: d", 1))
	g.Expect(result.Lines()).To(Equal([]string{
		"1 MachineDeployment would change.", "Note: Cluster default/d does not exist, so changes below the files are unknown.",
	}))
}

// A long value may differ only at its end.
func TestWhatFilesChange(t *testing.T) {
	w := small()
	w.objects["md"].SetAnnotations(map[string]string{"note": strings.Repeat("x", 60) + "y", "old": "1"})
	result := w.answer(t, strings.Replace(newOne, "{name: new, namespace: default}",
		"{name: md, namespace: default, annotations: {note: "+strings.Repeat("x", 60)+"z, old: null, new: two}}", 1))
	long := strings.Repeat("x", 47) + "…"
	NewWithT(t).Expect(result.Objects[0].Files).To(Equal([]string{
		"+ metadata.annotations.new=two", "~ metadata.annotations.note=" + long + " (was " + long + ")", "- metadata.annotations.old=1",
	}))
}

func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		file   string
		want   string
	}{
		"kinds from which nothing inherits": {
			file: "apiVersion: v1\nkind: Namespace\nmetadata: {name: fleet}", want: "Nothing inherits from Namespace fleet \\(kubectl diff shows it\\).",
		},
		"a workload cluster that does not answer": {
			change: func(w *world) { w.unreachable = errors.New("connection refused") },
			want:   "The Nodes of Cluster default/c are not shown, because its API server does not answer: connection refused.",
		},
		"a namespace that the server does not watch": {
			change: func(w *world) { w.flags = []string{"--namespace=other"} },
			want:   "Heirloom leaves MachineSet default/ms and 3 more alone: the server only watches namespace other.",
		},
		"paused": {
			change: func(w *world) { w.objects["m-0"].SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""}) },
			want:   "Heirloom leaves Machine default/m-0 and 2 more alone: it is paused.",
		},
		"what is not valid in a child": {
			file: declaring("gpu=yes:NoExecute,node.kubernetes.io/x:NoSchedule"),
			want: "Inheritance is incomplete for Machine default/m-0 and 5 more: MachineDeployment default/md .* is reserved .*",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := small()
			if test.change != nil {
				test.change(w)
			}
			if test.file == "" {
				test.file = machineDeployment
			}
			NewWithT(t).Expect(w.answer(t, test.file).Notes).To(ContainElement(MatchRegexp("^" + test.want + "$")))
		})
	}
}

func TestWhatCannotBeAnswered(t *testing.T) {
	g := NewWithT(t)
	_, err := small().ask(t, machineDeployment, machineDeployment)
	g.Expect(err).To(MatchError("the files contain MachineDeployment default/md twice: remove one copy"))
	_, err = small().ask(t, strings.Replace(machineDeployment, "v1beta2", "v1beta1", 1))
	g.Expect(err).To(MatchError(
		"MachineDeployment default/md has API version cluster.x-k8s.io/v1beta1: convert it to cluster.x-k8s.io/v1beta2, which Heirloom reads"))
	w := small()
	delete(w.objects, "c")
	_, err = w.ask(t)
	g.Expect(err).To(MatchError(`Cluster "c" not found in namespace "default" (use -n)`))
}

// busy returns the small world with Pods.
func busy() *world {
	w := small()
	pod := func(name, node string, change func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
		p.Spec.NodeName = node
		change(p)
		w.workload = append(w.workload, p)
	}
	tolerating := func(toleration corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{toleration} }
	}
	none := func(*corev1.Pod) {}
	pod("web", "m-0", none)
	pod("picky", "m-1", tolerating(corev1.Toleration{Key: "gpu", Value: "other", Effect: corev1.TaintEffectNoExecute}))
	pod("slow", "m-1", tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}))
	pod("gpu", "m-1", tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}))
	pod("agent", "m-2", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	})
	pod("static", "m-2", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} })
	pod("done", "m-2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pod("elsewhere", "other", none)
	for namespace, app := range map[string]string{"default": "web", "other": "web"} {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		w.workload = append(w.workload, budget)
	}
	return w
}

func TestTaints(t *testing.T) {
	evicts := []string{
		"Taint gpu=yes:NoExecute is new on 3 Nodes of Cluster default/c: m-0, m-1, m-2",
		"  evicts 3 Pods at once: default/agent (DaemonSet), default/picky, default/web",
		"  evicts 1 Pod later: default/slow (after 5m)",
		"  ignores 1 PodDisruptionBudget, as all taints do: default/web",
	}
	for name, test := range map[string]struct {
		change func(*world)
		taint  string
		want   []string
	}{
		"evicts": {want: append(evicts,
			"3 Nodes would get NoExecute taints one after the other, the last after 2m (--no-execute-rate=1).")},
		"slowly": {change: func(w *world) { w.flags = []string{"--no-execute-rate=0.5"} }, want: append(evicts,
			"3 Nodes would get NoExecute taints one after the other, the last after 4m (--no-execute-rate=0.5).")},
		"within budgets": {change: func(w *world) { w.flags = []string{"--no-execute=budgets"} }, want: append(evicts[:3:3],
			"3 Nodes would get NoExecute taints one after the other, the last after 2m (--no-execute-rate=1).")},
		"at once": {change: func(w *world) { w.flags = []string{"--no-execute-rate=0"} }, want: append(evicts,
			"3 Nodes would get NoExecute taints at the same time, because --no-execute-rate is 0.")},
		"keeps away": {taint: "gpu=yes:NoSchedule", want: []string{
			"Taint gpu=yes:NoSchedule is new on 3 Nodes of Cluster default/c: m-0, m-1, m-2",
			"  keeps 3 Pods from their Nodes after a restart: default/agent (DaemonSet), default/picky, default/web"}},
		"is there already": {change: func(w *world) {
			w.node(0).Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute}}
			w.node(1).Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "no", Effect: corev1.TaintEffectNoExecute}}
			w.workload = w.workload[:3]
		}, want: []string{"Taint gpu=yes:NoExecute is new on 2 Nodes of Cluster default/c: m-1, m-2", "  evicts no Pod",
			"2 Nodes would get NoExecute taints one after the other, the last after 60s (--no-execute-rate=1)."}},
	} {
		t.Run(name, func(t *testing.T) {
			w := busy()
			if test.change != nil {
				test.change(w)
			}
			if test.taint == "" {
				test.taint = "gpu=yes:NoExecute"
			}
			NewWithT(t).Expect(w.answer(t, declaring(test.taint)).Lines()[1:]).To(Equal(test.want))
		})
	}
}

func TestPace(t *testing.T) {
	of := pace.Limits
	for name, test := range map[string]struct {
		waiting map[[2]pace.Limit]int
		seconds int64
	}{
		"one of each Cluster at once":  {map[[2]pace.Limit]int{of("a", 1, "x", 1): 1, of("b", 1, "y", 1): 1}, 0},
		"the rest at the rate":         {map[[2]pace.Limit]int{of("a", 2, "x", 100): 5}, 120},
		"a set is slower":              {map[[2]pace.Limit]int{of("a", 60, "x", 11): 11}, 300},
		"two sets share their Cluster": {map[[2]pace.Limit]int{of("a", 1, "x", 2): 2, of("a", 1, "y", 2): 2}, 180},
		"the largest set goes first":   {map[[2]pace.Limit]int{of("a", 2, "y", 3): 3, of("a", 2, "x", 1): 1}, 120},
		"the slowest Cluster counts":   {map[[2]pace.Limit]int{of("a", 1, "x", 2): 2, of("b", 1, "y", 2): 4}, 180},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(paceOf(test.waiting, 1).LastAfterSeconds).To(Equal(test.seconds))
		})
	}
}

func TestTheAnswerForPrograms(t *testing.T) {
	g := NewWithT(t)
	w := busy()
	delete(w.objects, "m-1")
	delete(w.objects, "m-2")
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.answer(t, declaring("gpu=yes:NoExecute")))
	g.Expect(err).NotTo(HaveOccurred())
	text, err := json.Marshal(content)
	g.Expect(err).NotTo(HaveOccurred())
	fleet.Golden(t, "json", regexp.MustCompile(`("[^"]*":[[{]|},)`).ReplaceAllString(string(text), "$1\n")+"\n")
}
