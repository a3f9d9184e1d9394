// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// managementCluster is an API server with cert-manager's API and a clusterctl that installs from local repositories. Without a controller
// manager and Nodes, the installed programs do not run.
type managementCluster struct {
	*WithT
	ctx    context.Context
	client client.Client
	// dir is the directory of an administrator's kubeconfig, and of clusterctl's configuration and repositories.
	dir string
}

// The output of `hack/release.sh components` is a provider for the real clusterctl: it installs, configures, upgrades and deletes it.
func TestClusterctl(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	m := newManagementCluster(ctx, t)
	m.release("v0.1.0")
	m.release("v0.1.1")
	m.configure("")

	described := m.run("generate", "provider", "--addon", "heirloom:v0.1.0", "--describe")
	m.Expect(described).To(ContainSubstring("ghcr.io/heirloom-dev/heirloom:v0.1.0"))
	m.Expect(described).To(MatchRegexp(`TargetNamespace:\s+heirloom-system`))
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusterctl.md"))
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(names(`(?m)^\s+- (HEIRLOOM_\w+)`, described)).To(ConsistOf(names("(?m)^\\| `(HEIRLOOM_\\w+)` \\|", string(page))))

	// Without --core and the rest, clusterctl would install its defaults on a cluster that has no core provider.
	m.run("init", "--core", "cluster-api", "--bootstrap", "-", "--control-plane", "-", "--addon", "heirloom:v0.1.0")
	m.finishNamespaces()
	m.expectInstalled("heirloom-system", "v0.1.0")
	m.run("upgrade", "apply", "--addon", "heirloom-system/heirloom:v0.1.1")
	m.expectInstalled("heirloom-system", "v0.1.1")
	m.run("delete", "--addon", "heirloom")
	m.expectDeleted("heirloom-system", "v0.1.1")

	// The operator chooses the Namespace and the variables.
	m.configure(chosen)
	m.run("init", "--addon", "heirloom:v0.1.1", "--target-namespace", "elsewhere")
	m.finishNamespaces()
	container := m.expectInstalled("elsewhere", "v0.1.1")
	m.Expect(container.Image).To(Equal("registry.example.com/mirror/heirloom:v0.1.1"))
	m.Expect(container.Args).To(ContainElements(
		"--namespace=fleet", "--watch-filter=blue", "--v=4", "--management-cluster=fleet/self", "--no-execute-rate=0.5",
		"--mode=observe", "--enrollment=labeled",
		"--workload-admission=policy", `--additional-sync-machine-labels=^example\.com/.*$,^team$`,
		`--additional-sync-machine-annotations=^note\.example\.com/`,
	))
}

// chosen sets every variable to another value than its default, and a private registry.
const chosen = `
images: {addon-heirloom: {repository: registry.example.com/mirror}}
HEIRLOOM_NAMESPACE: fleet
HEIRLOOM_WATCH_FILTER: blue
HEIRLOOM_LOG_LEVEL: 4
HEIRLOOM_MANAGEMENT_CLUSTER: fleet/self
HEIRLOOM_MODE: observe
HEIRLOOM_ENROLLMENT: labeled
HEIRLOOM_NO_EXECUTE_RATE: 0.5
HEIRLOOM_WORKLOAD_ADMISSION: policy
HEIRLOOM_ADDITIONAL_SYNC_MACHINE_LABELS: '^example\.com/.*$,^team$'
HEIRLOOM_ADDITIONAL_SYNC_MACHINE_ANNOTATIONS: '^note\.example\.com/'
`

// names returns what the group of a regular expression matches in a text.
func names(expression, text string) (found []string) {
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

func newManagementCluster(ctx context.Context, t *testing.T) *managementCluster {
	t.Helper()
	m := &managementCluster{WithT: NewWithT(t), ctx: ctx, dir: t.TempDir()}
	certManager, err := controlplane.CertManagerCRDs()
	m.Expect(err).NotTo(HaveOccurred())
	plane := lend(t, certManager)
	m.client, err = client.New(plane.AdminConfig(), client.Options{Scheme: stage.Scheme()})
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(plane.WriteKubeconfig(m.path("admin.kubeconfig"), "admin", "system:masters")).To(Succeed())
	m.addCore()
	return m
}

func (m *managementCluster) path(elements ...string) string {
	return filepath.Join(append([]string{m.dir}, elements...)...)
}

func (m *managementCluster) write(path, content string) {
	m.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	m.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

// addCore puts Cluster API's core provider into clusterctl's repository, rendered from the manifests of its release.
func (m *managementCluster) addCore() {
	module, err := controlplane.CAPIModule(m.ctx)
	m.Expect(err).NotTo(HaveOccurred())
	base := filepath.Join(module, "core", "config", "default")
	components, _, err := controlplane.Kubectl(m.ctx, m.path("admin.kubeconfig"), "kustomize", base)
	m.Expect(err).NotTo(HaveOccurred())
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	m.Expect(err).NotTo(HaveOccurred())
	_, version, _ := strings.Cut(filepath.Base(module), "@")
	m.write(m.path("repository", "cluster-api", version, "core-components.yaml"), components)
	m.write(m.path("repository", "cluster-api", version, "metadata.yaml"), string(metadata))
}

// configure writes clusterctl's configuration: the names of the providers in the repository, and variables.
func (m *managementCluster) configure(variables string) {
	m.write(m.path("clusterctl.yaml"), fmt.Sprintf(`providers:
- {name: cluster-api, type: CoreProvider, url: "file://%[1]s/cluster-api/latest/core-components.yaml"}
- {name: heirloom, type: AddonProvider, url: "file://%[1]s/addon-heirloom/latest/addon-components.yaml"}
`, m.path("repository"))+variables)
}

// release puts a version of Heirloom into clusterctl's repository, as `make release` does.
func (m *managementCluster) release(version string) {
	dir := m.path("repository", "addon-heirloom", version)
	m.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
	command := exec.CommandContext(m.ctx, filepath.Join("..", "..", "hack", "release.sh"), "components")
	command.Env = append(os.Environ(), "VERSION="+version, "DIST="+dir)
	out, err := command.CombinedOutput()
	m.Expect(err).NotTo(HaveOccurred(), "%s", out)
}

// run runs clusterctl and returns its standard output.
func (m *managementCluster) run(args ...string) string {
	path, err := controlplane.ClusterAPIProgram("clusterctl")
	m.Expect(err).NotTo(HaveOccurred())
	args = append(args, "--config", m.path("clusterctl.yaml"))
	if args[0] != "generate" {
		args = append(args, "--kubeconfig", m.path("admin.kubeconfig"))
	}
	command := exec.CommandContext(m.ctx, path, args...)
	command.Env = append(os.Environ(), "HOME="+m.dir, "XDG_CONFIG_HOME="+m.dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	m.Expect(err).NotTo(HaveOccurred(), "clusterctl %v: %s", args, &stderr)
	return string(stdout)
}

// finishNamespaces acts as the controller manager for Namespaces that are being deleted: clusterctl tests cert-manager in a Namespace of
// its own.
func (m *managementCluster) finishNamespaces() {
	namespaces := &corev1.NamespaceList{}
	m.Expect(m.client.List(m.ctx, namespaces)).To(Succeed())
	for i := range namespaces.Items {
		if namespace := &namespaces.Items[i]; namespace.DeletionTimestamp != nil {
			namespace.Spec.Finalizers = nil
			m.Expect(m.client.SubResource("finalize").Update(m.ctx, namespace)).To(Succeed())
		}
	}
}

// components returns the objects that clusterctl installs.
func (m *managementCluster) components(namespace, version string) []unstructured.Unstructured {
	out := m.run("generate", "provider", "--addon", "heirloom:"+version, "--target-namespace", namespace)
	objects, err := controlplane.DecodeObjects(out)
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(len(objects)).To(BeNumerically(">", 10))
	return objects
}

// providers returns clusterctl's inventory of add-ons, each as "namespace/name version".
func (m *managementCluster) providers() (found []string) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
	list.SetKind("ProviderList")
	m.Expect(m.client.List(m.ctx, list)).To(Succeed())
	for _, provider := range list.Items {
		if provider.Object["type"] == "AddonProvider" {
			found = append(found, fmt.Sprintf("%s/%s %s", provider.GetNamespace(), provider.GetName(), provider.Object["version"]))
		}
	}
	return found
}

// expectInstalled expects that all objects of a version exist, that they are in this Namespace and name no other, and that the program
// accepts its arguments. It returns the program's container.
func (m *managementCluster) expectInstalled(namespace, version string) *corev1.Container {
	m.Expect(m.providers()).To(ConsistOf(namespace + "/addon-heirloom " + version))
	container := &corev1.Container{}
	for _, object := range m.components(namespace, version) {
		m.Expect(m.client.Get(m.ctx, client.ObjectKeyFromObject(&object), &object)).To(Succeed(), object.GetKind())
		m.Expect(object.GetNamespace()).To(BeElementOf("", namespace), object.GetKind())
		m.Expect(object.GetLabels()).To(And(HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-heirloom"),
			HaveKeyWithValue("app.kubernetes.io/version", version)), object.GetKind())
		content := text(object.Object)
		// The names of cluster-wide roles begin with the Namespace of the release file.
		for _, named := range names(`"(?:namespace":"|[^"]*inject-ca-from":"|heirloom-webhook\.)([a-z-]+)`, content) {
			m.Expect(named).To(Equal(namespace), content)
		}
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		m.Expect(containers).To(HaveLen(1))
		m.Expect(yaml.Unmarshal([]byte(text(containers[0])), container)).To(Succeed())
	}
	m.Expect(container.Name).To(Equal("manager"))
	m.Expect(container.Image).To(HaveSuffix("/heirloom:" + version))
	options, flags := config.NewOptions(), pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(flags)
	m.Expect(flags.Parse(container.Args)).To(Succeed())
	_, err := options.Complete()
	m.Expect(err).NotTo(HaveOccurred())
	return container
}

// expectDeleted expects that only the Namespace of a version is left.
func (m *managementCluster) expectDeleted(namespace, version string) {
	m.Expect(m.providers()).To(BeEmpty())
	for _, object := range m.components(namespace, version) {
		if object.GetKind() == "Namespace" {
			continue
		}
		err := m.client.Get(m.ctx, client.ObjectKeyFromObject(&object), object.DeepCopy())
		m.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s %s: %v", object.GetKind(), object.GetName(), err)
	}
}
