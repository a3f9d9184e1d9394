// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// batch is a change of MachineDeployment edge-batch.
const batch = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata:
  name: edge-batch
spec:
  template:
    metadata:
      labels:
        node.cluster.x-k8s.io/purpose: nightly
        team: batch
      annotations:
        taints.heirloom.dev/always: batch=yes:NoSchedule
    spec:
      deletion:
        nodeDrainTimeoutSeconds: 900
`

func testKubectlDiff(t *testing.T, w *kubectlWorld) {
	w.growBatch(t)
	w.pendingIsNothing(t)
	w.writesWhatDiffSays(t)
	w.pendingIsNothing(t)
}

// diff runs the diff command of the plugin.
func (w *kubectlWorld) diff(t *testing.T, stdin string, env []string, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	return w.run(t, pluginRun{args: append([]string{"diff"}, args...), stdin: strings.NewReader(stdin), env: env})
}

// growBatch adds a MachineDeployment with two Machines to Cluster edge, until the test ends.
func (w *kubectlWorld) growBatch(t *testing.T) {
	t.Helper()
	md := stage.MachineDeployment(w.edge.Cluster, "edge-batch", stage.Declared{Labels: map[string]string{"team": "batch"}})
	md.Spec.Replicas = ptr.To(int32(2))
	w.createAs("kubectl", md)
	ms := stage.MachineSet(md, "edge-batch-2v6mz")
	w.createAs("capi-machinedeployment", ms)
	made := []client.Object{ms, md}
	for _, name := range []string{"edge-batch-1", "edge-batch-2"} {
		m := stage.Machine(ms, name)
		w.addMachine(w.edge, m)
		w.inherits(w.edge, name, "", "team", "batch")
		made = append(made, m)
		t.Cleanup(func() { w.Expect(w.edge.Client.Delete(w.ctx, stage.Node(name))).To(Succeed()) })
	}
	t.Cleanup(func() {
		for _, object := range made {
			w.Expect(w.Client.Delete(w.ctx, object)).To(Succeed())
		}
	})
}

// pendingIsNothing expects the plugin to agree with the server: when all objects have inherited, the plugin has nothing to write.
func (w *kubectlWorld) pendingIsNothing(t *testing.T) {
	t.Helper()
	w.Eventually(func(g Gomega) {
		out, stderr, code := w.diff(t, "", nil, "cluster.cluster.x-k8s.io/prod", "edge")
		g.Expect(out).To(HavePrefix("Nothing would change.\n"))
		g.Expect(stderr).To(BeEmpty())
		g.Expect(code).To(BeZero())
	}).WithTimeout(patience).Should(Succeed())
}

// writesWhatDiffSays applies the file, and expects every object to become as diff showed it.
func (w *kubectlWorld) writesWhatDiffSays(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "keep")
	w.Expect(os.WriteFile(program, []byte("#!/bin/sh\ncp -R \"$2\" \"$KEEP\"\nexit 1\n"), 0o700)).To(Succeed())
	env := []string{"KUBECTL_EXTERNAL_DIFF=" + program, "KEEP=" + filepath.Join(dir, "MERGED")}
	_, stderr, code := w.diff(t, batch, env, "-f", "-", "--show-all")
	w.Expect(code).To(Equal(1), stderr)
	announced := announcedIn(t, filepath.Join(dir, "MERGED"))
	w.Expect(announced).To(HaveLen(1+1+2+2+2+2), "MachineDeployment, MachineSet, and two each of Machines, InfraMachines, BootstrapConfigs, Nodes")

	var file map[string]any
	w.Expect(yaml.Unmarshal([]byte(batch), &file)).To(Succeed())
	patch, err := (&unstructured.Unstructured{Object: file}).MarshalJSON()
	w.Expect(err).NotTo(HaveOccurred())
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "edge-batch"}}
	w.Expect(w.Client.Patch(w.ctx, md, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("kubectl"))).To(Succeed())
	for _, want := range announced {
		from := w.Client
		if want.GetKind() == "Node" {
			from = w.edge.Client
		}
		w.Eventually(func(g Gomega) {
			now := &unstructured.Unstructured{}
			now.SetGroupVersionKind(want.GroupVersionKind())
			g.Expect(from.Get(w.ctx, client.ObjectKeyFromObject(want), now)).To(Succeed())
			g.Expect(writable(t, now)).To(Equal(writable(t, want)))
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed(), want.GetKind()+" "+want.GetName())
	}
	node := stage.Node("edge-batch-2")
	w.Expect(w.edge.Client.Get(w.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	w.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("batch=yes:NoSchedule"))
	w.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/purpose", "nightly"))
}

// announcedIn reads the objects that the plugin gave to the diff program.
func announcedIn(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var all []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		object := &unstructured.Unstructured{}
		NewWithT(t).Expect(yaml.Unmarshal(text, &object.Object)).To(Succeed())
		all = append(all, object)
	}
	return all
}

// writable returns the fields that a write of Heirloom can change. The spec is text, because numbers have other types in a file.
func writable(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	spec, err := yaml.Marshal(object.Object["spec"])
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return map[string]any{"labels": object.GetLabels(), "annotations": object.GetAnnotations(), "spec": string(spec)}
}
