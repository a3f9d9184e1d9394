// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/bootstrap"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// adopt moves a Cluster, with a topology and with the MachineDeployment solo beside it, from bootstrap configurations to declarations: the
// patches of kubectl heirloom adopt change no Node, the old sources go with the next upgrade, and no Machine is replaced besides.
func (f *fleet) adopt() {
	f.t.Helper()
	begun := time.Now()
	done := func(what string) { f.t.Logf("%s after %s", what, time.Since(begun).Round(100*time.Millisecond)) }
	f.buildLegacy()
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	go f.registerNodes(ctx)
	heirloom := func(args string) string { return f.shell("kubectl heirloom " + args + " --namespace=" + f.namespace) }
	f.Eventually(func(g Gomega) {
		nodes := f.allNodes()
		g.Expect(nodes).To(HaveLen(4))
		for _, node := range nodes {
			g.Expect(contentOf(node)).To(And(ContainSubstring(`"pool":"gpu"`), Not(ContainSubstring(clusterv1.NodeUninitializedTaint.Key))), node.GetName())
		}
		g.Expect(heirloom("diff legacy")).To(HavePrefix("Nothing would change."))
	}).WithPolling(time.Second).Should(Succeed()) // each poll runs programs
	nodes, machines := f.entriesOfNodes(), f.uids()
	done("registered")
	kept := f.record()
	f.Expect(heirloom("adopt legacy")).To(ContainSubstring("\nThen nothing changes on any Node, and no Machine is replaced"))
	f.shell("kubectl heirloom adopt legacy -o patch --namespace=" + f.namespace + " | sh")
	f.Eventually(func(g Gomega) {
		g.Expect(heirloom("diff legacy")).To(HavePrefix("Nothing would change."))
		g.Expect(heirloom("adopt legacy")).To(And(ContainSubstring("declared twice"), Not(ContainSubstring("--patch-file"))))
	}).WithPolling(time.Second).Should(Succeed()) // each poll runs programs
	kept("before")
	f.Expect(f.entriesOfNodes()).To(Equal(nodes))
	f.Expect(f.uids()).To(Equal(machines))
	done("adopted")

	solo := f.config("KubeadmConfigTemplate", "solo")
	f.Expect(f.Client.Patch(f.ctx, withoutRegistration(solo), client.MergeFrom(solo))).To(Succeed())
	f.upgradeClass("upgraded")
	f.Eventually(func(g Gomega) {
		g.Expect(f.allNodes()).To(HaveLen(4))
		all := &clusterv1.MachineList{}
		g.Expect(f.Client.List(f.ctx, all, client.InNamespace(f.namespace))).To(Succeed())
		g.Expect(all.Items).To(HaveLen(4))
		for _, m := range all.Items {
			g.Expect(meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineReadyCondition)).To(BeTrue(), m.Name)
			g.Expect(m.Spec.Version == "v1.36.1").To(Equal(m.Labels[clusterv1.MachineDeploymentNameLabel] != "solo"), m.Name)
		}
		g.Expect(heirloom("adopt legacy")).To(HavePrefix("All labels and taints that all Nodes of a pool have are declared.\n"))
	}).WithPolling(time.Second).Should(Succeed()) // each poll runs programs
	f.Expect(slices.Sorted(maps.Values(f.entriesOfNodes()))).To(Equal(slices.Sorted(maps.Values(nodes))))
	f.Expect(slices.ContainsFunc(f.uids(), func(uid string) bool { return strings.HasPrefix(uid, "solo-") && slices.Contains(machines, uid) })).To(BeTrue())
	written, err := writesIn(f.auditLog, "cluster-api")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(written[f.namespace]["create machines"]).To(Equal(4+3), "four Machines, and three because of the upgrade")
	done("upgraded")
}

// buildLegacy creates the Cluster. Its bootstrap configurations declare a label that no rule propagates, a label for Nodes, and taints.
func (f *fleet) buildLegacy() {
	f.t.Helper()
	taints := []any{map[string]any{"key": "before", "value": "yes", "effect": "PreferNoSchedule"}}
	registration := map[string]any{"imagePullPolicy": "IfNotPresent", "taints": taints, "kubeletExtraArgs": []any{
		map[string]any{"name": "node-labels", "value": "pool=gpu,node.cluster.x-k8s.io/tier=gold"},
	}}
	leads := maps.Clone(registration)
	leads["taints"] = append(taints, map[string]any{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"})
	set := func(object client.Object) {
		u, spec := object.(*unstructured.Unstructured), []string{"spec", "template", "spec"} //nolint:forcetypeassert // it panics
		switch u.GetKind() {
		case "KubeadmConfigTemplate":
			f.Expect(unstructured.SetNestedField(u.Object, registration, append(spec, "joinConfiguration", "nodeRegistration")...)).To(Succeed())
		case "KubeadmControlPlaneTemplate":
			for _, phase := range []string{"initConfiguration", "joinConfiguration"} {
				f.Expect(unstructured.SetNestedField(u.Object, leads, append(spec, "kubeadmConfigSpec", phase, "nodeRegistration")...)).To(Succeed())
			}
		}
	}
	f.Expect(clusterapi.CreateClass(f.ctx, f.Client, f.namespace, set)).To(Succeed())
	f.cluster = clusterapi.OfClass(f.namespace, "legacy", 2)
	f.create(f.cluster)
	content, err := os.ReadFile(filepath.Join("testdata", "solo.yaml"))
	f.Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.DecodeObjects(string(content))
	f.Expect(err).NotTo(HaveOccurred())
	for i := range objects {
		objects[i].SetNamespace(f.namespace)
		set(&objects[i])
		f.create(&objects[i])
	}
}

// registerNodes plays the kubelets, which the in-memory provider does not have: each new Node gets the labels and taints of the bootstrap
// configuration of its Machine.
func (f *fleet) registerNodes(ctx context.Context) {
	registered, server := map[string]bool{}, client.Client(nil)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var err error
		if server == nil {
			if server, err = clusterapi.Workload(ctx, f.Client, types.NamespacedName{Namespace: f.namespace, Name: "legacy"}); err != nil {
				return // it is not there yet
			}
		}
		nodes := &corev1.NodeList{}
		_ = server.List(ctx, nodes) // the next time
		for i := range nodes.Items {
			if node := &nodes.Items[i]; !registered[node.Name] {
				registered[node.Name] = f.register(ctx, server, node) == nil
			}
		}
	}, 100*time.Millisecond)
}

func (f *fleet) register(ctx context.Context, server client.Client, node *corev1.Node) error {
	m, config := &clusterv1.Machine{}, &unstructured.Unstructured{}
	if err := f.Client.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: node.Name}, m); err != nil {
		return err
	}
	config.SetGroupVersionKind(schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"})
	if err := f.Client.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}, config); err != nil {
		return err
	}
	before := node.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	for _, d := range bootstrap.Of(config.Object) {
		key, effect, isTaint := strings.Cut(d.Name, ":")
		there := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && string(t.Effect) == effect })
		if isTaint && !there {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: d.Value, Effect: corev1.TaintEffect(effect)})
		} else if !isTaint {
			node.Labels[key] = d.Value
		}
	}
	return server.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("kubelet"))
}

// upgradeClass gives the Cluster, in one write, another version and a copy of its ClusterClass with a name, whose bootstrap configurations do
// not declare anything for Nodes any more.
func (f *fleet) upgradeClass(name string) {
	f.t.Helper()
	for _, kind := range []string{"KubeadmConfigTemplate", "KubeadmControlPlaneTemplate"} {
		f.create(named(name, withoutRegistration(f.config(kind, clusterapi.ClassName))))
	}
	class := &clusterv1.ClusterClass{}
	f.Expect(f.Client.Get(f.ctx, client.ObjectKey{Namespace: f.namespace, Name: clusterapi.ClassName}, class)).To(Succeed())
	class.Spec.ControlPlane.TemplateRef.Name, class.Spec.Workers.MachineDeployments[0].Bootstrap.TemplateRef.Name = name, name
	f.create(named(name, class))
	f.changeCluster(func(topology *clusterv1.Topology) { topology.ClassRef.Name, topology.Version = name, "v1.36.1" })
}

// config returns a bootstrap configuration or a template of a control plane.
func (f *fleet) config(kind, name string) *unstructured.Unstructured {
	f.t.Helper()
	u, group := &unstructured.Unstructured{}, "bootstrap.cluster.x-k8s.io"
	if strings.HasPrefix(kind, "KubeadmControlPlane") {
		group = "controlplane.cluster.x-k8s.io"
	}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind})
	f.Expect(f.Client.Get(f.ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, u)).To(Succeed())
	return u
}

// withoutRegistration returns a copy with nothing for Nodes but the taint that kubeadm gives control planes.
func withoutRegistration(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	for _, spec := range [][]string{{"spec", "template", "spec"}, {"spec", "template", "spec", "kubeadmConfigSpec"}} {
		for _, phase := range []string{"initConfiguration", "joinConfiguration"} {
			path := slices.Concat(spec, []string{phase, "nodeRegistration"})
			unstructured.RemoveNestedField(u.Object, append(path, "kubeletExtraArgs")...)
			taints, has, _ := unstructured.NestedSlice(u.Object, append(path, "taints")...)
			if taints = slices.DeleteFunc(taints, func(t any) bool { return strings.Contains(text(t), `"before"`) }); len(taints) > 0 {
				_ = unstructured.SetNestedSlice(u.Object, taints, append(path, "taints")...)
			} else if has {
				unstructured.RemoveNestedField(u.Object, append(path, "taints")...)
			}
		}
	}
	return u
}

// named returns the object as a new object with this name.
func named[T client.Object](name string, object T) T {
	object.SetName(name)
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetOwnerReferences(nil)
	object.SetManagedFields(nil)
	return object
}

// entriesOfNodes returns, for each Node, the labels that the bootstrap configurations declare, and all taints.
func (f *fleet) entriesOfNodes() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, node := range f.allNodes() {
		taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
		slices.SortFunc(taints, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		all[node.GetName()] = text([]any{node.GetLabels()["pool"], node.GetLabels()["node.cluster.x-k8s.io/tier"], taints})
	}
	return all
}

// uids returns the name and the UID of each Machine.
func (f *fleet) uids() (all []string) {
	for _, m := range f.list(f.Client, machineKind, f.namespace) {
		all = append(all, m.GetName()+" "+string(m.GetUID()))
	}
	slices.Sort(all)
	return all
}

// shell runs a line with kubectl and the built plugin, as an administrator, and returns its standard output or, without an answer, the error.
func (w *world) shell(line string) string {
	w.t.Helper()
	plugin, err := controlplane.Built(w.ctx, "kubectl-heirloom")
	w.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(w.dir, "admin.kubeconfig")
	w.Expect(w.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	command := exec.CommandContext(w.ctx, "sh", "-c", line)
	path := strings.Join([]string{os.Getenv("HEIRLOOM_TOOLS"), filepath.Dir(plugin), os.Getenv("PATH")}, string(os.PathListSeparator))
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+w.dir, "PATH="+path) // the plugin caches discovery below HOME
	var wrong strings.Builder
	command.Stderr = &wrong
	out, err := command.Output()
	if err != nil && command.ProcessState.ExitCode() != 1 { // 1 is a finding or a difference
		return fmt.Sprintf("%s: %v: %s", line, err, wrong.String())
	}
	return string(out)
}
