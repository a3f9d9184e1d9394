// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// ended is how a run of heirloom release has ended.
type ended struct {
	stdout, stderr string
	err            error
}

// released are the lines about objects that have been written, or would have been.
func (o ended) released() []string {
	var lines []string
	for line := range strings.Lines(o.stdout) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), " (dry run)"); strings.Contains(line, "/") && !strings.HasPrefix(line, ".") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// hook is heirloom release as the chart's pre-delete hook runs it.
type hook struct {
	*scene
	kubeconfig string
	args       []string
	// heirloom is the Deployment that Helm has installed.
	heirloom unstructured.Unstructured
}

// deployment is Heirloom's.
func (h hook) deployment() *appsv1.Deployment {
	h.t.Helper()
	deployment := &appsv1.Deployment{}
	h.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(h.heirloom.Object, deployment)).To(Succeed())
	return deployment
}

// hook installs what Helm creates before it uninstalls, apart from the Job, whose arguments it takes.
func (s *scene) hook(values map[string]any) hook {
	s.t.Helper()
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	rendered, err := controlplane.RenderChart(s.ctx, filepath.Join(root, "deploy", "chart", "heirloom"),
		controlplane.ChartOptions{Namespace: stage.Namespace, Values: values, Hooks: true})
	s.Expect(err).NotTo(HaveOccurred())
	h := hook{scene: s, kubeconfig: filepath.Join(s.dir, "uninstall.kubeconfig")}
	var around []unstructured.Unstructured
	for _, object := range rendered {
		if object.GetKind() == "Deployment" {
			h.heirloom = object
		}
		if object.GetAnnotations()["helm.sh/hook"] != "pre-delete" {
			continue
		}
		if object.GetKind() != "Job" {
			around = append(around, object)
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		s.Expect(err).NotTo(HaveOccurred())
		for _, arg := range containers[0].(map[string]any)["args"].([]any) {
			h.args = append(h.args, arg.(string))
		}
		s.Expect(s.Client.Create(s.ctx, object.DeepCopy(), client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
	}
	s.Expect(controlplane.Apply(s.ctx, s.Client, around)).To(Succeed())
	s.Expect(s.WriteKubeconfig(h.kubeconfig, "system:serviceaccount:"+stage.Namespace+":heirloom-uninstall",
		"system:serviceaccounts", "system:serviceaccounts:"+stage.Namespace)).To(Succeed())
	return h
}

// run runs it with further arguments.
func (h hook) run(args ...string) ended {
	h.t.Helper()
	return runProgram(h.ctx, slices.Concat(h.args, []string{"--kubeconfig=" + h.kubeconfig}, args))
}

func runProgram(ctx context.Context, args []string) ended {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := controlplane.Run(command)
	return ended{stdout: stdout.String(), stderr: stderr.String(), err: err}
}

// everything are all objects of all kinds that an API server can list.
func (s *scene) everything(cp *controlplane.ControlPlane) []unstructured.Unstructured {
	s.t.Helper()
	config := cp.AdminConfig()
	d, err := discovery.NewDiscoveryClientForConfig(config)
	s.Expect(err).NotTo(HaveOccurred())
	lists, err := discovery.ServerPreferredResources(d)
	s.Expect(err).NotTo(HaveOccurred())
	c, err := dynamic.NewForConfig(config)
	s.Expect(err).NotTo(HaveOccurred())
	keys, err := cp.Keys(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	var objects []unstructured.Unstructured
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		s.Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || unused(keys, gv.WithResource(resource.Name).GroupResource()) {
				continue
			}
			found, err := c.Resource(gv.WithResource(resource.Name)).List(s.ctx, metav1.ListOptions{})
			s.Expect(err).NotTo(HaveOccurred(), resource.Kind)
			objects = append(objects, found.Items...)
		}
	}
	return objects
}

// unused says that a resource is of a CRD and has no objects. To list it would have the API server build all that it takes.
func unused(keys []string, resource schema.GroupResource) bool {
	custom := slices.Contains(keys, "/registry/apiextensions.k8s.io/customresourcedefinitions/"+resource.String())
	return custom && !slices.ContainsFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, "/registry/"+resource.Group+"/"+resource.Resource+"/")
	})
}

// inheriting are those objects of which something may be Heirloom's.
func inheriting(objects []unstructured.Unstructured) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(object unstructured.Unstructured) bool {
		return object.GetKind() != "Node" && !strings.HasSuffix(object.GroupVersionKind().Group, "cluster.x-k8s.io") &&
			object.GroupVersionKind().Group != "infrastructure.example.com"
	})
}

// stored are these objects by kind and name, with the versions in which they are stored.
func stored(objects []unstructured.Unstructured) map[string]any {
	named := map[string]any{}
	for _, object := range objects {
		named[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
	}
	return named
}

// remains names what is left of Heirloom in these objects.
func remains(objects []unstructured.Unstructured) []string {
	var found []string
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
			for key := range keys {
				if strings.HasPrefix(key, "heirloom.dev/") && key != workload.AdmissionLabel {
					found = append(found, name+" has "+key)
				}
			}
		}
		taints, _, _ := unstructured.NestedSlice(object.Object, "spec", "taints")
		for _, taint := range taints {
			if object.GetKind() == "Node" && taint.(map[string]any)["key"] == clusterv1.NodeUninitializedTaint.Key {
				found = append(found, name+" has the guard taint")
			}
		}
		if slices.Contains([]string{webhook.ObjectName, "nodes.heirloom.dev"}, object.GetName()) {
			found = append(found, name+" is there")
		}
	}
	for _, object := range inheriting(objects) {
		for _, entry := range object.GetManagedFields() {
			if strings.HasPrefix(entry.Manager, "heirloom") {
				found = append(found, object.GetKind()+" "+object.GetName()+" has managed fields of heirloom: "+entry.FieldsV1.GetRawString())
			}
		}
	}
	return found
}

// registered starts a kubelet, waits for its Node and stops it again, so that nobody else writes the Node.
func (s *scene) registered(name string, check func(g Gomega, node *corev1.Node)) *corev1.Node {
	s.t.Helper()
	kubelet := s.startKubelet(controlplane.KubeletOptions{Name: name})
	_, err := kubelet.WaitRegistered(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	node := stage.Node(name)
	s.eventually(node, func(g Gomega) {
		g.Expect(ready(node)).To(BeTrue())
		check(g, node)
	})
	s.Expect(kubelet.Stop()).To(Succeed())
	return node
}

// releaseLease makes nobody the leader, on a stage without the loop.
func (s *scene) releaseLease() {
	s.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "leader-election-heirloom"}}
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.Expect(s.Client.Delete(s.ctx, lease)).To(Succeed())
}

// stored is an object of that name, in the namespace of that name if it is in any.
func (s *scene) stored(kind, name string) unstructured.Unstructured {
	s.t.Helper()
	object := &unstructured.Unstructured{}
	key := client.ObjectKey{Namespace: name, Name: name}
	switch kind {
	case "Node":
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		key.Namespace = ""
	case "FakeMachine":
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: kind})
	default:
		object.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	}
	s.Expect(s.Client.Get(s.ctx, key, object)).To(Succeed())
	return *object
}

// withHash replaces the label by which a MachineSet tells its Machines from those of others.
func withHash(labels map[string]string, hash string) map[string]string {
	return merged(labels, map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash})
}
