// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// managementCluster is an API server with cert-manager's API and a clusterctl that installs from local repositories. Without a controller
// manager and Nodes, the installed programs do not run.
type managementCluster struct {
	*gomega.WithT
	t      *testing.T
	ctx    context.Context
	plane  *controlplane.ControlPlane
	client client.Client
	// dir is the directory of an administrator's kubeconfig, and of clusterctl's configuration and repositories.
	dir string
}

func newManagementCluster(ctx context.Context, t *testing.T) *managementCluster {
	t.Helper()
	m := &managementCluster{WithT: gomega.NewWithT(t), t: t, ctx: ctx, dir: t.TempDir()}
	certManager, err := controlplane.CertManagerCRDs()
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.plane = lend(t, certManager).ControlPlane
	scheme := stage.Scheme()
	m.Expect(cmapi.AddToScheme(scheme)).To(gomega.Succeed())
	m.client, err = client.New(m.plane.AdminConfig(), client.Options{Scheme: scheme})
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.Expect(m.plane.WriteKubeconfig(m.path("admin.kubeconfig"), "admin", "system:masters")).To(gomega.Succeed())
	m.addCore()
	return m
}

func (m *managementCluster) path(elements ...string) string {
	return filepath.Join(append([]string{m.dir}, elements...)...)
}

func (m *managementCluster) write(path, content string) {
	m.t.Helper()
	m.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(gomega.Succeed())
	m.Expect(os.WriteFile(path, []byte(content), 0o600)).To(gomega.Succeed())
}

// addCore puts Cluster API's core provider into clusterctl's repository, rendered from the manifests of its release.
func (m *managementCluster) addCore() {
	m.t.Helper()
	module, err := controlplane.CAPIModule(m.ctx)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	base := filepath.Join(module, "core", "config", "default")
	components, _, err := controlplane.Kubectl(m.ctx, m.path("admin.kubeconfig"), "kustomize", base)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	m.Expect(err).NotTo(gomega.HaveOccurred())
	_, version, _ := strings.Cut(filepath.Base(module), "@")
	m.write(m.path("repository", "cluster-api", version, "core-components.yaml"), components)
	m.write(m.path("repository", "cluster-api", version, "metadata.yaml"), string(metadata))
}

// configure writes clusterctl's configuration: the names of the providers in the repository, and variables.
func (m *managementCluster) configure(variables string) {
	m.t.Helper()
	m.write(m.path("clusterctl.yaml"), fmt.Sprintf(`providers:
- {name: cluster-api, type: CoreProvider, url: "file://%[1]s/cluster-api/latest/core-components.yaml"}
- {name: heirloom, type: AddonProvider, url: "file://%[1]s/addon-heirloom/latest/addon-components.yaml"}
`, m.path("repository"))+variables)
}

// release puts a version of Heirloom into clusterctl's repository, as `make release` does, and returns the directory.
func (m *managementCluster) release(version string) string {
	m.t.Helper()
	dir := m.path("repository", "addon-heirloom", version)
	m.Expect(os.MkdirAll(dir, 0o700)).To(gomega.Succeed())
	command := exec.CommandContext(m.ctx, filepath.Join("..", "..", "hack", "release.sh"), "components")
	command.Env = append(os.Environ(), "VERSION="+version, "DIST="+dir)
	out, err := command.CombinedOutput()
	m.Expect(err).NotTo(gomega.HaveOccurred(), "%s", out)
	return dir
}

// run runs clusterctl and returns its standard output.
func (m *managementCluster) run(args ...string) string {
	m.t.Helper()
	path, err := controlplane.ClusterAPIProgram("clusterctl")
	m.Expect(err).NotTo(gomega.HaveOccurred())
	args = append(args, "--config", m.path("clusterctl.yaml"))
	if args[0] != "generate" {
		args = append(args, "--kubeconfig", m.path("admin.kubeconfig"))
	}
	command := exec.CommandContext(m.ctx, path, args...)
	command.Env = append(os.Environ(), "HOME="+m.dir, "XDG_CONFIG_HOME="+m.dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	m.Expect(err).NotTo(gomega.HaveOccurred(), "clusterctl %v: %s", args, &stderr)
	return string(stdout)
}

// finishNamespaces acts as the controller manager for Namespaces that are being deleted: clusterctl tests cert-manager in a Namespace of
// its own.
func (m *managementCluster) finishNamespaces() {
	m.t.Helper()
	namespaces := &corev1.NamespaceList{}
	m.Expect(m.client.List(m.ctx, namespaces)).To(gomega.Succeed())
	for i := range namespaces.Items {
		if namespace := &namespaces.Items[i]; namespace.DeletionTimestamp != nil {
			namespace.Spec.Finalizers = nil
			m.Expect(m.client.SubResource("finalize").Update(m.ctx, namespace)).To(gomega.Succeed())
		}
	}
}

// components returns the objects that clusterctl installs.
func (m *managementCluster) components(namespace, version string) []unstructured.Unstructured {
	m.t.Helper()
	out := m.run("generate", "provider", "--addon", "heirloom:"+version, "--target-namespace", namespace)
	objects, err := controlplane.DecodeObjects(out)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	return objects
}

// providers returns clusterctl's inventory of add-ons, each as "namespace/name version".
func (m *managementCluster) providers() []string {
	m.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
	list.SetKind("ProviderList")
	m.Expect(m.client.List(m.ctx, list)).To(gomega.Succeed())
	var found []string
	for _, provider := range list.Items {
		if provider.Object["type"] == "AddonProvider" {
			found = append(found, fmt.Sprintf("%s/%s %s", provider.GetNamespace(), provider.GetName(), provider.Object["version"]))
		}
	}
	return found
}

// pointsTo checks all fields outside the Namespace that name it.
func (m *managementCluster) pointsTo(namespace string) {
	m.t.Helper()
	key := client.ObjectKey{Name: "heirloom"}
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	m.Expect(m.client.Get(m.ctx, key, mutating)).To(gomega.Succeed())
	m.Expect(m.client.Get(m.ctx, key, validating)).To(gomega.Succeed())
	var services []string
	for _, webhook := range mutating.Webhooks {
		services = append(services, webhook.ClientConfig.Service.Namespace)
	}
	for _, webhook := range validating.Webhooks {
		services = append(services, webhook.ClientConfig.Service.Namespace)
	}
	m.Expect(services).NotTo(gomega.BeEmpty())
	m.Expect(services).To(gomega.HaveEach(namespace))
	for _, object := range []client.Object{mutating, validating} {
		m.Expect(object.GetAnnotations()).To(gomega.HaveKeyWithValue(cmapi.WantInjectAnnotation, namespace+"/heirloom-webhook"))
	}
	certificate := &cmapi.Certificate{}
	m.Expect(m.client.Get(m.ctx, client.ObjectKey{Namespace: namespace, Name: "heirloom-webhook"}, certificate)).To(gomega.Succeed())
	m.Expect(certificate.Spec.DNSNames).To(gomega.ContainElement("heirloom-webhook." + namespace + ".svc"))
	binding := &rbacv1.ClusterRoleBinding{}
	m.Expect(m.client.Get(m.ctx, client.ObjectKey{Name: "heirloom-system-heirloom"}, binding)).To(gomega.Succeed())
	m.Expect(binding.Subjects).To(gomega.HaveLen(1))
	m.Expect(binding.Subjects[0].Namespace).To(gomega.Equal(namespace))
}

// startProgram starts bin/heirloom as the ServiceAccount in a Namespace, with the arguments of a Pod except for paths that exist only in
// a Pod. It returns the URL of its health endpoint.
func (m *managementCluster) startProgram(namespace string, args []string) (process *controlplane.Process, health string) {
	m.t.Helper()
	dir, err := os.MkdirTemp(m.dir, "program")
	m.Expect(err).NotTo(gomega.HaveOccurred())
	kubeconfig := filepath.Join(dir, "kubeconfig")
	m.Expect(m.plane.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+namespace+":heirloom",
		"system:serviceaccounts", "system:serviceaccounts:"+namespace)).To(gomega.Succeed())
	_, err = controlplane.ServingCertificate(dir, "127.0.0.1")
	m.Expect(err).NotTo(gomega.HaveOccurred())
	ports, err := controlplane.FreePorts(3)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	args = slices.Concat(args, []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect-namespace=" + namespace, "--webhook-cert-dir=" + dir,
		fmt.Sprintf("--webhook-port=%d", ports[0]), fmt.Sprintf("--health-addr=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("--diagnostics-address=127.0.0.1:%d", ports[2]),
	})
	log := filepath.Join(dir, "heirloom.log")
	m.t.Cleanup(func() {
		if text, err := os.ReadFile(log); err == nil && m.t.Failed() {
			m.t.Logf("log of heirloom:\n%s", text)
		}
	})
	process, err = controlplane.StartProcess(m.ctx, binary(m.t, "heirloom"), args, log)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	return process, fmt.Sprintf("http://127.0.0.1:%d", ports[1])
}
