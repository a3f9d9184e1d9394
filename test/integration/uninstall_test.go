// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Helm itself uninstalls a release: the hook runs before anything else goes, what it may do is enough for what it is told
// to do, and nothing of it is left. There is no kubelet for its Pod, so the test runs the program as the Job says.
func TestHelmUninstall(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutProgram: true})
	kubeconfig := filepath.Join(s.dir, "admin.kubeconfig")
	s.Expect(s.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	ca, err := controlplane.ServingCertificate(t.TempDir(), "127.0.0.1")
	s.Expect(err).NotTo(HaveOccurred())
	red, blue := s.abroad("red"), s.abroad("blue")
	for _, tc := range []struct{ name, release, namespace string }{{"false", "false", ""}, {"within", "true", "red"}, {"true", "true", ""}} {
		for _, a := range []abroad{red, blue} {
			s.admitBefore(a)
			s.Expect(s.ways(a.Client)).To(Equal([]string{a.byDefault()}))
		}
		name := "farewell-" + tc.name
		_, _, err = controlplane.Helm(s.ctx, kubeconfig, "install", name, filepath.Join(root, "deploy", "chart", "heirloom"),
			"--namespace", name, "--create-namespace", "--set", "fullnameOverride="+name, "--set", "uninstall.release="+tc.release, "--set", "namespace="+tc.namespace,
			"--set", "certificates.mode=provided", "--set", "certificates.provided.secretName=tls",
			"--set", "certificates.provided.caBundle="+base64.StdEncoding.EncodeToString(ca),
			"--set", "workloadClusters.webhookURL="+s.WorkloadURL)
		s.Expect(err).NotTo(HaveOccurred())
		uninstalled := make(chan error, 1)
		go func() {
			_, _, err := controlplane.Helm(s.ctx, kubeconfig, "uninstall", name, "--namespace", name, "--timeout", "2m")
			uninstalled <- err
		}()
		if tc.release == "false" {
			blue.Door.Shut()
		}
		ended := s.playJob(name, uninstalled)
		s.Eventually(uninstalled).WithTimeout(patience).Should(Receive(BeNil()))
		for _, object := range s.everything(s.ControlPlane) {
			if object.GetKind() != "Namespace" && object.GetKind() != "Lease" && object.GetKind() != "Event" {
				s.Expect(object.GetName()).NotTo(HavePrefix(name), object.GetKind())
			}
		}
		s.Expect(s.ways(red.Client)).To(BeEmpty())
		if tc.release == "true" {
			remains := BeEmpty()
			if tc.namespace != "" {
				remains = Not(BeEmpty()) // it is in another namespace
			}
			s.Expect(s.ways(blue.Client)).To(remains)
			continue
		}
		s.Expect(s.ways(blue.Client)).NotTo(BeEmpty(), "it did not answer")
		s.Expect(ended.stderr).To(And(ContainSubstring("workload cluster blue/blue: what admits Nodes there could not be taken away, and stays. "+
			"By hand, with its kubeconfig: kubectl delete --ignore-not-found "), Not(ContainSubstring("workload cluster red/red")), Not(ContainSubstring("there is no Event"))))
		s.expectEvent("WorkloadAdmissionLeft", "Cluster", "blue", ContainSubstring("kubectl delete"))
		s.Expect(blue.Door.Open()).To(Succeed())
	}
}

// playJob does what the kubelet and the Job controller would with the hook's Job.
func (s *scene) playJob(name string, uninstalled <-chan error) ended {
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
	ended := runProgram(s.ctx, append(job.Spec.Template.Spec.Containers[0].Args, "--kubeconfig="+kubeconfig))
	s.Expect(ended.err).NotTo(HaveOccurred(), ended.stderr)
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		s.Expect(apierrors.IsNotFound(s.Client.Get(s.ctx, client.ObjectKey{Name: name}, configuration))).To(BeTrue())
	}
	s.Expect(s.Client.Get(s.ctx, client.ObjectKey{Name: "heirloom"}, &admissionregistrationv1.MutatingWebhookConfiguration{})).To(Succeed(), "another's")
	stopped := &appsv1.Deployment{}
	s.Expect(s.Client.Get(s.ctx, key, stopped)).To(Succeed())
	s.Expect(stopped.Spec.Replicas).To(HaveValue(BeZero()))

	before, now := job.DeepCopy(), metav1.Now()
	job.Status = batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
	}
	conditions := []batchv1.JobConditionType{batchv1.JobComplete}
	if s.AtLeast(31) { // before, only Jobs with a successPolicy may have it
		conditions = append(conditions, batchv1.JobSuccessCriteriaMet)
	}
	for _, condition := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Second)),
		})
	}
	s.Expect(s.Client.Status().Patch(s.ctx, job, client.MergeFrom(before))).To(Succeed())
	return ended
}
