// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// TestControlPlane starts one control plane for all that needs one.
func TestControlPlane(t *testing.T) {
	log.SetLogger(klog.Background()) // or controller-runtime complains after 30 seconds
	dir := shortTempDir(t)
	paths, err := controlplane.CAPICRDPaths()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	certManager, err := controlplane.CertManagerCRDs()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	providers, err := controlplane.ProviderCRDPath(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	audit := filepath.Join(dir, "audit.log")
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		CRDPaths: append(paths, certManager, providers),
		AuditLog: audit,
		LogDir:   dir,
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := controlplane.RecordVersions(ctx, cp.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		started := time.Now()
		NewWithT(t).Expect(cp.Stop()).To(Succeed())
		NewWithT(t).Expect(time.Since(started)).To(BeNumerically("<", 5*time.Second), "nobody waits for a watch that is open")
		content, err := os.ReadFile(filepath.Join(dir, "kube-apiserver.log"))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(string(content)).NotTo(ContainSubstring("shutdown"), "it is killed, and told nothing before")
	})

	t.Run("CRDs are established", func(t *testing.T) { testEstablished(t, cp) })
	t.Run("providers that do not exist", func(t *testing.T) { testProviders(t, cp) })
	t.Run("a kubelet registers", func(t *testing.T) { testKubelet(t, cp, dir) })
	t.Run("a kubelet may touch its own Node only", func(t *testing.T) { testNodeRestriction(t, cp) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, cp, dir) })
	t.Run("a chart is applied", func(t *testing.T) { testApplyChart(t, cp) })
	t.Run("requests are in the audit log", func(t *testing.T) {
		Expect := NewWithT(t).Expect
		content, err := os.ReadFile(audit)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(ContainSubstring(`"username":"system:node:node-0"`))
	})
}

// shortTempDir is t.TempDir without the test's name, which would make paths too long for Unix sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "controlplane")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
			return
		}
		t.Logf("logs are in %s", dir)
	})
	return dir
}

func newClient(t *testing.T, cp *controlplane.ControlPlane) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	NewWithT(t).Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(cp.AdminConfig(), client.Options{Scheme: scheme})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func testEstablished(t *testing.T, cp *controlplane.ControlPlane) {
	Expect := NewWithT(t).Expect
	var crds apiextensionsv1.CustomResourceDefinitionList
	Expect(newClient(t, cp).List(t.Context(), &crds)).To(Succeed())
	var names []string
	for _, crd := range crds.Items {
		names = append(names, crd.Name)
		Expect(crd.Status.Conditions).To(ContainElement(And(
			HaveField("Type", apiextensionsv1.Established),
			HaveField("Status", apiextensionsv1.ConditionTrue),
		)), crd.Name)
	}
	Expect(names).To(ContainElements(
		"machines.cluster.x-k8s.io", "clusterclasses.cluster.x-k8s.io", "kubeadmconfigs.bootstrap.cluster.x-k8s.io",
		"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io", "certificates.cert-manager.io"))
}

func testKubelet(t *testing.T, cp *controlplane.ControlPlane, dir string) {
	Expect := NewWithT(t).Expect
	recorder, err := controlplane.RecordVersions(t.Context(), cp.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	Expect(err).NotTo(HaveOccurred())
	kubelet, err := cp.StartKubelet(t.Context(), controlplane.KubeletOptions{
		Name:               "node-0",
		NodeLabels:         map[string]string{"rack": "r1", "node.cluster.x-k8s.io/pool": "a"},
		RegisterWithTaints: []string{"node.cluster.x-k8s.io/uninitialized=:NoSchedule", "gpu=true:NoExecute"},
		Dir:                dir,
	})
	Expect(err).NotTo(HaveOccurred())
	_, err = kubelet.WaitRegistered(t.Context())
	Expect(err).NotTo(HaveOccurred())

	NewWithT(t).Eventually(recorder.Versions, "60s").WithArguments("", "node-0").Should(ContainElement(BeReady()))
	Expect(kubelet.Stop()).To(Succeed())
	output, err := os.ReadFile(filepath.Join(dir, "node-0.log"))
	Expect(err).NotTo(HaveOccurred())
	for _, named := range []string{`Using (\S+) as root dir`, `endpoint="unix://(\S+)"`} {
		file := regexp.MustCompile(named).FindSubmatch(output)
		Expect(file).NotTo(BeNil(), named)
		Expect(string(file[1])).NotTo(BeAnExistingFile(), "nothing may be left behind")
	}
	Expect(recorder.Stop()).To(Succeed())

	versions := recorder.Versions("", "node-0")
	Expect(versions[0].Type).To(Equal(watch.Added))
	first := toNode(t, versions[0])
	Expect(first.Spec.ProviderID).To(Equal("kubemark://node-0"))
	Expect(first.Labels).To(And(HaveKeyWithValue("rack", "r1"), HaveKeyWithValue("node.cluster.x-k8s.io/pool", "a"),
		HaveKeyWithValue("kubernetes.io/hostname", "node-0")))
	Expect(first.Annotations).To(BeEmpty())
	Expect(first.Status.Addresses).To(ConsistOf(
		HaveField("Type", corev1.NodeInternalIP),
		Equal(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-0"})))
	// The last one comes from admission in the API server itself: a new Node is not ready.
	Expect(first.Spec.Taints).To(ConsistOf(
		corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoExecute},
		corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
	))
	for _, later := range versions[1:] {
		Expect(later.Type).To(Equal(watch.Modified))
		Expect(toNode(t, later).Spec.Taints).To(ConsistOf(first.Spec.Taints))
	}
	Expect(recorder.All()).To(HaveLen(len(versions)))
}

// BeReady matches a version of a Node whose condition Ready is true.
func BeReady() OmegaMatcher {
	return WithTransform(func(version controlplane.Version) ([]corev1.NodeCondition, error) {
		var node corev1.Node
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, &node)
		return node.Status.Conditions, err
	}, ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
}

func toNode(t *testing.T, version controlplane.Version) *corev1.Node {
	t.Helper()
	var node corev1.Node
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, &node)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &node
}

func testNodeRestriction(t *testing.T, cp *controlplane.ControlPlane) {
	Expect := NewWithT(t).Expect
	config, err := cp.User("system:node:node-1", "system:nodes")
	Expect(err).NotTo(HaveOccurred())
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	nodes := clientset.CoreV1().Nodes()

	_, err = nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, metav1.CreateOptions{})
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a Node of another name: %v", err)
	labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
	}}
	_, err = nodes.Create(t.Context(), labelled, metav1.CreateOptions{})
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a restricted label: %v", err)
	_, err = nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	patch := []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/tenant":"a"}}}`)
	_, err = nodes.Patch(t.Context(), "node-1", types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a restricted label in an update: %v", err)
}

func testKubectl(t *testing.T, cp *controlplane.ControlPlane, dir string) {
	Expect := NewWithT(t).Expect
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	Expect(cp.WriteKubeconfig(kubeconfig, "someone", "system:masters")).To(Succeed())
	stdout, stderr, err := controlplane.Kubectl(t.Context(), kubeconfig, "auth", "whoami", "-o", "json")
	Expect(err).NotTo(HaveOccurred(), stderr)
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	Expect(json.Unmarshal([]byte(stdout), &review)).To(Succeed())
	Expect(review.Status.UserInfo.Username).To(Equal("someone"))

	_, stderr, err = controlplane.Kubectl(t.Context(), kubeconfig, "get", "node", "nowhere")
	Expect(err).To(MatchError(ContainSubstring("not found")))
	Expect(stderr).To(ContainSubstring("not found"))
}

func testApplyChart(t *testing.T, cp *controlplane.ControlPlane) {
	Expect := NewWithT(t).Expect
	objects := renderedChart(t, false)
	c := newClient(t, cp)
	Expect(controlplane.Apply(t.Context(), c, objects)).To(Succeed())
	var settings corev1.ConfigMap
	Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "heirloom-system", Name: "heirloom"}, &settings)).To(Succeed())
	Expect(settings.Data).To(HaveKeyWithValue("colour", "green"))
	version := settings.ResourceVersion

	Expect(controlplane.Apply(t.Context(), c, objects)).To(Succeed(), "again")
	Expect(c.Get(t.Context(), client.ObjectKeyFromObject(&settings), &settings)).To(Succeed())
	Expect(settings.ResourceVersion).To(Equal(version))
}
