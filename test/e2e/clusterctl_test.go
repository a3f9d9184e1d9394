// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The output of `hack/release.sh components` is a provider for the real clusterctl: it installs, configures, upgrades and deletes it.
func TestClusterctl(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	m := newManagementCluster(ctx, t)
	m.keepsContract(m.release("v0.1.0"))
	m.release("v0.1.1")
	m.configure("")

	described := m.run("generate", "provider", "--addon", "heirloom:v0.1.0", "--describe")
	m.Expect(described).To(ContainSubstring("ghcr.io/heirloom-dev/heirloom:v0.1.0"))
	m.Expect(described).To(MatchRegexp(`TargetNamespace:\s+heirloom-system`))
	m.Expect(variables(described)).To(Equal(documentedVariables(t)))

	// Without --core and the rest, clusterctl would install its defaults on a cluster that has no core provider.
	m.run("init", "--core", "cluster-api", "--bootstrap", "-", "--control-plane", "-", "--addon", "heirloom:v0.1.0")
	m.finishNamespaces()
	m.installed("heirloom-system", "v0.1.0")
	m.starts("heirloom-system")

	m.run("upgrade", "apply", "--addon", "heirloom-system/heirloom:v0.1.1")
	m.installed("heirloom-system", "v0.1.1")

	m.releases()
	m.run("delete", "--addon", "heirloom")
	m.deleted("heirloom-system", "v0.1.1")

	// The operator chooses the Namespace and the variables.
	m.configure(chosen)
	m.run("init", "--addon", "heirloom:v0.1.1", "--target-namespace", "elsewhere")
	m.finishNamespaces()
	m.installed("elsewhere", "v0.1.1")
	container := m.deployment("elsewhere").Spec.Template.Spec.Containers[0]
	m.Expect(container.Image).To(Equal("registry.example.com/mirror/heirloom:v0.1.1"))
	m.Expect(container.Args).To(ContainElements(
		"--namespace=fleet", "--watch-filter=blue", "--v=4", "--management-cluster=fleet/self", "--no-execute-rate=0.5",
		"--workload-admission=policy", `--additional-sync-machine-labels=^example\.com/.*$,^team$`,
		`--additional-sync-machine-annotations=^note\.example\.com/`,
	))
	m.starts("elsewhere")
}

// chosen sets every variable to another value than its default, and a private registry.
const chosen = `
images: {addon-heirloom: {repository: registry.example.com/mirror}}
HEIRLOOM_NAMESPACE: fleet
HEIRLOOM_WATCH_FILTER: blue
HEIRLOOM_LOG_LEVEL: 4
HEIRLOOM_MANAGEMENT_CLUSTER: fleet/self
HEIRLOOM_NO_EXECUTE_RATE: 0.5
HEIRLOOM_WORKLOAD_ADMISSION: policy
HEIRLOOM_ADDITIONAL_SYNC_MACHINE_LABELS: '^example\.com/.*$,^team$'
HEIRLOOM_ADDITIONAL_SYNC_MACHINE_ANNOTATIONS: '^note\.example\.com/'
`

// keepsContract checks the requirements of the provider contract for the files before clusterctl changes them.
func (m *managementCluster) keepsContract(dir string) {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "addon-components.yaml"))
	m.Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.DecodeObjects(string(content))
	m.Expect(err).NotTo(HaveOccurred())
	var namespaces []string
	for _, object := range objects {
		m.Expect(object.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-heirloom"), object.GetKind())
		if object.GetKind() == "Namespace" {
			namespaces = append(namespaces, object.GetName())
		}
	}
	m.Expect(namespaces).To(ConsistOf("heirloom-system"))
}

// variables returns the names of the variables in clusterctl's description of a provider.
func variables(described string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^\s+- (HEIRLOOM_\w+)`).FindAllStringSubmatch(described, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return found
}

// documentedVariables returns the variables in the table of docs/clusterctl.md.
func documentedVariables(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusterctl.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(HEIRLOOM_\\w+)` \\|").FindAllSubmatch(page, -1) {
		found = append(found, string(match[1]))
	}
	slices.Sort(found)
	return found
}

// installed checks that all objects of a version exist, in this Namespace and nowhere else.
func (m *managementCluster) installed(namespace, version string) {
	m.t.Helper()
	m.Expect(m.providers()).To(ConsistOf(namespace + "/addon-heirloom " + version))
	objects := m.components(namespace, version)
	m.Expect(len(objects)).To(BeNumerically(">", 10))
	for i := range objects {
		object := objects[i].DeepCopy()
		m.Expect(m.client.Get(m.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed(), "%s", object.GetKind())
		m.Expect(object.GetNamespace()).To(BeElementOf("", namespace), object.GetKind())
		m.Expect(object.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-heirloom"), object.GetKind())
		m.Expect(object.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/version", version), object.GetKind())
	}
	template := m.deployment(namespace).Spec.Template
	m.Expect(template.Labels).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-heirloom"))
	m.Expect(template.Spec.Containers).To(HaveLen(1))
	m.Expect(template.Spec.Containers[0].Name).To(Equal("manager"))
	m.Expect(template.Spec.Containers[0].Image).To(HaveSuffix("/heirloom:" + version))
	m.Expect(template.Spec.Containers[0].Args).To(ContainElement(HavePrefix("--namespace=")))
	m.pointsTo(namespace)
}

// deleted checks that only the Namespace of a version is left.
func (m *managementCluster) deleted(namespace, version string) {
	m.t.Helper()
	for _, object := range m.components(namespace, version) {
		err := m.client.Get(m.ctx, client.ObjectKeyFromObject(&object), object.DeepCopy())
		if object.GetKind() == "Namespace" {
			m.Expect(err).NotTo(HaveOccurred())
			continue
		}
		m.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	m.Expect(m.providers()).To(BeEmpty())
}

// releases gives up everything that Heirloom owns, with the command on the page, while everything is still installed.
func (m *managementCluster) releases() {
	m.t.Helper()
	ofCore := client.MatchingLabels{clusterv1.ProviderNameLabel: "cluster-api"}
	const command = "kubectl heirloom release --stop --yes"
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusterctl.md"))
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(string(page)).To(MatchRegexp(`(?s)\n    ` + command + `\n.*\n    clusterctl delete --addon heirloom\n`))

	// No manager of Cluster API runs here.
	m.Expect(m.client.DeleteAllOf(m.ctx, &admissionv1.MutatingWebhookConfiguration{}, ofCore)).To(Succeed())
	m.Expect(m.client.DeleteAllOf(m.ctx, &admissionv1.ValidatingWebhookConfiguration{}, ofCore)).To(Succeed())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	md := stage.MachineDeployment(stage.Cluster("fleet", "fleet"), "workers", stage.Declared{})
	m.Expect(m.client.Create(m.ctx, namespace)).To(Succeed())
	m.Expect(m.client.Create(m.ctx, md)).To(Succeed())
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineDeployment",
		"metadata": map[string]any{"namespace": "fleet", "name": "workers", "labels": map[string]any{"inherited": "yes"}},
	}}
	m.Expect(m.client.Apply(m.ctx, client.ApplyConfigurationFromUnstructured(own), client.FieldOwner("heirloom"))).To(Succeed())

	args := strings.Fields(command)[2:]
	released := exec.CommandContext(m.ctx, binary(m.t, "kubectl-heirloom"), args...)
	released.Env = append(os.Environ(), "KUBECONFIG="+m.path("admin.kubeconfig"), "HOME="+m.dir)
	out, err := released.CombinedOutput()
	m.Expect(err).NotTo(HaveOccurred(), "%s", out)
	m.Expect(m.client.Get(m.ctx, client.ObjectKeyFromObject(md), md)).To(Succeed())
	m.Expect(md.Labels).NotTo(HaveKey("inherited"), "%s", out)
	for _, configuration := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{},
	} {
		err := m.client.Get(m.ctx, client.ObjectKey{Name: "heirloom"}, configuration)
		m.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}
}

func (m *managementCluster) deployment(namespace string) *appsv1.Deployment {
	m.t.Helper()
	deployment := &appsv1.Deployment{}
	m.Expect(m.client.Get(m.ctx, client.ObjectKey{Namespace: namespace, Name: "heirloom"}, deployment)).To(Succeed())
	return deployment
}

// starts runs the program until it is ready, with the arguments and the rights from clusterctl.
func (m *managementCluster) starts(namespace string) {
	m.t.Helper()
	for _, kind := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.ClusterClassList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{},
		&clusterv1.MachineSetList{}, &clusterv1.MachineList{},
	} { // the API server serves new CRDs only after a moment
		m.Eventually(func() error { return m.client.List(m.ctx, kind) }).WithTimeout(patience).Should(Succeed())
	}
	process, health := m.startProgram(namespace, m.deployment(namespace).Spec.Template.Spec.Containers[0].Args)
	m.Expect(process.WaitReady(m.ctx, health+"/readyz")).To(Succeed())
	m.Expect(process.Stop()).To(Succeed())
}
