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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// helm uninstall runs the chart's hook before it deletes other objects. The rights of the hook suffice for its work, and no object of the
// hook stays. With uninstall.cleanup, no object in either cluster has an entry or managed field of Heirloom; pkg/cleanup tests the entries
// that stay. No kubelet runs the Pod of the hook's Job, so the test runs the program with the arguments of the Job.
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
	said := s.comeAndGo("farewell-false", "uninstall.cleanup=false")
	s.Expect(said).To(And(ContainSubstring("workload cluster red/red: objects that admit Nodes could not be deleted. "+
		"To delete them by hand, with the kubeconfig of the workload cluster: kubectl delete --ignore-not-found "), Not(ContainSubstring("no Event was written"))))
	s.expectEvent("WorkloadAdmissionLeft", "Cluster", "red", ContainSubstring("kubectl delete"))
	s.Expect(s.ways(red.Client)).NotTo(BeEmpty(), "the workload cluster did not answer")

	s.Expect(red.Door.Open()).To(Succeed())
	s.admitBefore(red, "farewell-within") // a cleanup removes only its own policy
	s.comeAndGo("farewell-within", "uninstall.cleanup=true", "watchNamespace=red")
	s.Expect(s.ways(red.Client)).To(BeEmpty())
	s.get(red.m)
	s.Expect(ours(red.m)).To(BeEmpty())
	s.get(home.m)
	s.Expect(ours(home.m)).NotTo(BeEmpty(), "the Machine is in another namespace")

	s.Expect(left()).NotTo(BeEmpty())
	s.comeAndGo("farewell-true", "uninstall.cleanup=true")
	s.Expect(left()).To(BeEmpty())
	s.get(home.m)
	s.Expect(home.m.Labels).To(HaveKeyWithValue("mine", "yes"), "the entries of others stay")
}

// inUse makes a Node in each cluster inherit. A user adds a label to a Machine.
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
	s.get(home.m)
	s.update(home.m, func() { home.m.Labels["mine"] = "yes" })
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
		s.Expect(object.GetName()).NotTo(HavePrefix(name), object.GetKind())
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

// everything returns the objects of the kinds that Heirloom writes and that its chart has, as far as an API server serves them.
func (s *scene) everything(cp *controlplane.ControlPlane) (objects []unstructured.Unstructured) {
	s.t.Helper()
	c, err := client.New(cp.AdminConfig(), client.Options{})
	s.Expect(err).NotTo(HaveOccurred())
	for of, kinds := range map[string]string{
		clusterv1.GroupVersion.String():           "Cluster ClusterClass MachineDeployment MachineSet MachinePool Machine",
		"infrastructure.cluster.x-k8s.io/v1beta2": "FakeMachine",
		"v1":                              "Node ConfigMap Secret Service ServiceAccount",
		"apps/v1":                         "Deployment",
		"batch/v1":                        "Job",
		"policy/v1":                       "PodDisruptionBudget",
		"rbac.authorization.k8s.io/v1":    "ClusterRole ClusterRoleBinding Role RoleBinding",
		"admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
	} {
		for kind := range strings.FieldsSeq(kinds) {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(of)
			list.SetKind(kind)
			if err := c.List(s.ctx, list); !meta.IsNoMatchError(err) {
				s.Expect(err).NotTo(HaveOccurred(), kind)
			}
			objects = append(objects, list.Items...)
		}
	}
	return objects
}

// remains describes the traces of Heirloom in these objects.
func remains(objects []unstructured.Unstructured) []string {
	var found []string
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		for key := range labels.Merge(labels.Merge(map[string]string{}, object.GetLabels()), object.GetAnnotations()) {
			if strings.HasPrefix(key, "heirloom.dev/") && key != inherit.AdmissionLabel {
				found = append(found, name+" has "+key)
			}
		}
		if slices.Contains([]string{webhook.ObjectName, "nodes.heirloom.dev"}, object.GetName()) {
			found = append(found, name+" is there")
		}
		if object.GetKind() != "Node" && !strings.HasSuffix(object.GroupVersionKind().Group, "cluster.x-k8s.io") {
			continue // an object of the chart
		}
		for _, entry := range object.GetManagedFields() {
			if strings.HasPrefix(entry.Manager, "heirloom") {
				found = append(found, name+" has managed fields of heirloom: "+entry.FieldsV1.GetRawString())
			}
		}
	}
	return found
}
