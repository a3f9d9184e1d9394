// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// helm uninstall runs the chart's hook before it deletes other objects. The rights of the hook suffice for its work, and no object of the
// hook stays. With uninstall.release, no object of any kind in either cluster has an entry or managed field of Heirloom, and the entries of
// others are unchanged. No kubelet runs the Pod of the hook's Job, so the test runs the program with the arguments of the Job.
func TestHelmUninstall(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true, Args: []string{
		"--additional-sync-machine-labels=^team$", "--additional-sync-machine-annotations=^note$",
	}})
	home, red := s.settle("home", declared()), s.abroad("red")
	s.inUse(home, red)
	left := func() []string {
		return remains(append(s.everything(s.ControlPlane), s.everything(red.ControlPlane)...))
	}
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.Expect(s.Client.DeleteAllOf(s.ctx, &admissionregistrationv1.MutatingWebhookConfiguration{})).To(Succeed())
	s.Expect(s.Client.DeleteAllOf(s.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{})).To(Succeed())

	s.admitBefore(red, "farewell-false")
	red.Door.Shut()
	said := s.comeAndGo("farewell-false", "uninstall.release=false")
	s.Expect(said).To(And(ContainSubstring("workload cluster red/red: objects that admit Nodes could not be deleted. "+
		"To delete them by hand, with the kubeconfig of the workload cluster: kubectl delete --ignore-not-found "), Not(ContainSubstring("no Event was written"))))
	s.expectEvent("WorkloadAdmissionLeft", "Cluster", "red", ContainSubstring("kubectl delete"))
	s.Expect(s.ways(red.Client)).NotTo(BeEmpty(), "the workload cluster did not answer")

	s.Expect(red.Door.Open()).To(Succeed())
	s.admitBefore(red, "farewell-within") // a release removes only its own policy
	s.comeAndGo("farewell-within", "uninstall.release=true", "watchNamespace=red")
	s.Expect(s.ways(red.Client)).To(BeEmpty())
	s.get(red.m)
	s.Expect(ours(red.m)).To(BeEmpty())
	s.get(home.m)
	s.Expect(ours(home.m)).NotTo(BeEmpty(), "the Machine is in another namespace")

	s.Expect(left()).NotTo(BeEmpty())
	s.comeAndGo("farewell-true", "uninstall.release=true")
	s.Expect(left()).To(BeEmpty())
	s.expectOnlyOthers(home)
}

// inUse makes a Node in each cluster inherit. A user adds entries to a Machine and its Node, and Cluster API's controller becomes a second
// owner of a label and a taint of the Machine.
func (s *scene) inUse(home family, red abroad) {
	s.t.Helper()
	complete := func(g Gomega, node *corev1.Node) {
		g.Expect(node.Labels).To(And(HaveKeyWithValue("team", "ml"), HaveKey("node-role.kubernetes.io/worker")))
		g.Expect(node.Annotations).To(HaveKeyWithValue("note", "for humans"))
	}
	node, abroad := stage.Node(home.m.Name), stage.Node(red.m.Name)
	s.create(node, infraMachine(home.m))
	s.Expect(red.Client.Create(s.ctx, abroad)).To(Succeed())
	s.eventually(node, func(g Gomega) { complete(g, node) })
	s.eventuallyNode(red, abroad, func(g Gomega) { complete(g, abroad) })
	s.update(node, func() {
		node.Labels["mine"] = "yes"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	s.get(home.m)
	s.update(home.m, func() { home.m.Labels["mine"] = "yes" })
	shared := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine",
		"metadata": map[string]any{"namespace": home.m.Namespace, "name": home.m.Name, "labels": map[string]any{"team": "ml"}},
		"spec": map[string]any{"taints": []any{
			map[string]any{"key": "gpu", "value": "true", "effect": "NoSchedule", "propagation": "Always"},
		}},
	}}
	s.Expect(s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(shared), client.FieldOwner("capi-machineset"), client.ForceOwnership)).To(Succeed())
}

// expectOnlyOthers expects a family to have only the entries of other managers and of the API server itself.
func (s *scene) expectOnlyOthers(f family) {
	s.t.Helper()
	bareSet, bare := stage.MachineSet(f.md, "bare-set"), stage.Machine(f.ms, "bare")
	s.Expect(s.Client.Create(s.ctx, bareSet, client.DryRunAll)).To(Succeed())
	s.Expect(s.Client.Create(s.ctx, bare, client.DryRunAll)).To(Succeed())
	hash := map[string]string{clusterv1.MachineDeploymentUniqueLabel: f.ms.Name} // Cluster API selects the MachineSet's Machines with it
	s.get(f.ms)
	s.Expect(f.ms.Labels).To(BeEquivalentTo(labels.Merge(bareSet.Labels, hash)))
	bareSet.Spec.Selector, bareSet.Spec.Template.Labels = f.ms.Spec.Selector, labels.Merge(bareSet.Spec.Template.Labels, hash)
	s.Expect(f.ms.Spec).To(Equal(bareSet.Spec))

	s.get(f.m)
	bare.Labels["mine"], bare.Labels["team"] = "yes", "ml"
	bare.Spec.Taints, bare.Spec.ProviderID = stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"), f.m.Spec.ProviderID
	bare.Spec.InfrastructureRef.Name = f.m.Spec.InfrastructureRef.Name
	s.Expect(f.m.Labels).To(Equal(bare.Labels))
	s.Expect(f.m.Annotations).To(BeEmpty())
	s.Expect(f.m.Spec).To(Equal(bare.Spec), "entries that Cluster API also owns stay")

	node := stage.Node(f.m.Name)
	s.get(node)
	s.Expect(node.Labels).To(And(HaveKeyWithValue("mine", "yes"), HaveKey("node-role.kubernetes.io/worker"), Not(HaveKey("team"))))
	s.Expect(node.Annotations).To(And(HaveKey(clusterv1.LabelsFromMachineAnnotation), Not(HaveKey("note"))))
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(
		ContainSubstring("mine:NoSchedule"), ContainSubstring("gpu=true:NoSchedule")), "taints that Cluster API tracks stay")
}

// comeAndGo installs a release with this name and these values, and uninstalls it. It returns the hook's output.
func (s *scene) comeAndGo(name string, values ...string) string {
	s.t.Helper()
	kubeconfig := s.adminKubeconfig()
	ca, err := controlplane.ServingCertificate(s.t.TempDir(), "127.0.0.1")
	s.Expect(err).NotTo(HaveOccurred())
	args := []string{"install", name, filepath.Join(root, "deploy", "chart", "heirloom"), "--namespace", name, "--create-namespace"}
	for _, value := range append(values, "fullnameOverride="+name, "certificates.mode=provided", "certificates.provided.secretName=tls",
		"certificates.provided.caBundle="+base64.StdEncoding.EncodeToString(ca), "workloadClusters.webhookURL="+s.WorkloadURL) {
		args = append(args, "--set", value)
	}
	_, _, err = controlplane.Helm(s.ctx, kubeconfig, args...)
	s.Expect(err).NotTo(HaveOccurred())
	uninstalled := make(chan error, 1)
	go func() {
		_, _, err := controlplane.Helm(s.ctx, kubeconfig, "uninstall", name, "--namespace", name, "--timeout", "2m")
		uninstalled <- err
	}()
	said := s.playJob(name, uninstalled)
	s.Eventually(uninstalled).WithTimeout(patience).Should(Receive(BeNil()))
	for _, object := range s.everything(s.ControlPlane) {
		if !slices.Contains([]string{"Namespace", "Lease", "Event"}, object.GetKind()) {
			s.Expect(object.GetName()).NotTo(HavePrefix(name), object.GetKind())
		}
	}
	return said
}

// playJob does the work of the kubelet and the Job controller for the hook's Job, and returns the program's output.
func (s *scene) playJob(name string, uninstalled <-chan error) string {
	s.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-uninstall"}}
	s.Eventually(func(g Gomega) {
		g.Expect(uninstalled).NotTo(Receive())
		g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
	}).WithTimeout(patience).Should(Succeed())
	key := client.ObjectKey{Namespace: name, Name: name}
	s.Expect(s.Client.Get(s.ctx, key, &appsv1.Deployment{})).To(Succeed(), "the hook comes first")
	s.Expect(s.Client.Get(s.ctx, key, &admissionregistrationv1.MutatingWebhookConfiguration{})).To(Succeed())

	kubeconfig := filepath.Join(s.dir, name+".kubeconfig")
	s.Expect(s.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+name+":"+job.Spec.Template.Spec.ServiceAccountName,
		"system:serviceaccounts", "system:serviceaccounts:"+name)).To(Succeed())
	var stderr bytes.Buffer
	command := exec.CommandContext(s.ctx, program, append(job.Spec.Template.Spec.Containers[0].Args, "--kubeconfig="+kubeconfig)...)
	command.Stderr = &stderr
	s.Expect(command.Run()).To(Succeed(), stderr.String())
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		s.Expect(apierrors.IsNotFound(s.Client.Get(s.ctx, client.ObjectKey{Name: name}, configuration))).To(BeTrue())
	}
	stopped := &appsv1.Deployment{}
	s.Expect(s.Client.Get(s.ctx, key, stopped)).To(Succeed())
	s.Expect(stopped.Spec.Replicas).To(HaveValue(BeZero()))

	before, now := job.DeepCopy(), metav1.Now()
	job.Status = batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
	}
	conditions := []batchv1.JobConditionType{batchv1.JobComplete}
	if s.AtLeast(31) { // in earlier versions, only Jobs with a successPolicy may have it
		conditions = append(conditions, batchv1.JobSuccessCriteriaMet)
	}
	for _, condition := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Second)),
		})
	}
	s.Expect(s.Client.Status().Patch(s.ctx, job, client.MergeFrom(before))).To(Succeed())
	return stderr.String()
}

// everything returns the objects of all kinds that an API server can list.
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

// unused reports whether a resource belongs to a CRD and has no objects. The API server sets up the handlers of a CRD for its first list,
// which is slow.
func unused(keys []string, resource schema.GroupResource) bool {
	custom := slices.Contains(keys, "/registry/apiextensions.k8s.io/customresourcedefinitions/"+resource.String())
	return custom && !slices.ContainsFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, "/registry/"+resource.Group+"/"+resource.Resource+"/")
	})
}

// remains describes the traces of Heirloom in these objects.
func remains(objects []unstructured.Unstructured) []string {
	var found []string
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		for key := range labels.Merge(labels.Merge(map[string]string{}, object.GetLabels()), object.GetAnnotations()) {
			if strings.HasPrefix(key, "heirloom.dev/") && key != workload.AdmissionLabel {
				found = append(found, name+" has "+key)
			}
		}
		if slices.Contains([]string{webhook.ObjectName, "nodes.heirloom.dev"}, object.GetName()) {
			found = append(found, name+" is there")
		}
		if object.GetKind() != "Node" && !strings.HasSuffix(object.GroupVersionKind().Group, "cluster.x-k8s.io") {
			continue // Heirloom's own object, or an object of Helm
		}
		for _, entry := range object.GetManagedFields() {
			if strings.HasPrefix(entry.Manager, "heirloom") {
				found = append(found, name+" has managed fields of heirloom: "+entry.FieldsV1.GetRawString())
			}
		}
	}
	return found
}
