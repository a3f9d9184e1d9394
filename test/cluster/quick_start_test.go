// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

const (
	quickStart = "docs/quick-start.md"
	// quickCluster is the Cluster of the page, in the namespace "default".
	quickCluster = "quick-start"
)

// quickStarted returns the steps for the blocks of the page.
func quickStarted() []step {
	return []step{
		{starts: "kind create cluster", passed: "the test has a cluster"},
		{starts: "git clone", without: []string{
			"git clone", "VERSION=dev hack/release.sh image", "kind load", // the test has loaded the image of `make test-cluster`
			"make build", // `make test-cluster` runs it
		}},
		{starts: "clusterctl generate cluster", follows: func(w *walk, _ string) { w.initialize() }},
		{starts: "kind get kubeconfig", passed: "it is for the containers of Docker; the test has written the kubeconfig"},
		{starts: "kubectl patch cluster", follows: func(w *walk, _ string) { w.join() }},
		{starts: "NODE=", follows: func(w *walk, printed string) {
			page, err := os.ReadFile(filepath.Join(w.root, quickStart))
			w.Expect(err).NotTo(HaveOccurred())
			w.Expect(anyName(string(page))).To(ContainSubstring("\n" + anyName(printed) + "```\n"))
		}},
		{starts: "kubectl delete cluster", passed: "it is for the containers, too"},
	}
}

// The commands of the page for the first ten minutes have the effects that it describes, with Cluster API's own programs in Pods: its
// clusterctl installs them, and the ClusterClass of its Docker provider becomes Machines. Only the step from containers to Nodes is
// simulated.
func TestTheQuickStart(t *testing.T) {
	if shared.Cluster == nil {
		t.Skip(cluster.Missing())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	r := &release{WithT: NewWithT(t), t: t, ctx: ctx}
	w := &walk{release: r, session: newSession(ctx, t), page: quickStart, steps: quickStarted()}
	w.env = append(w.env, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "HOME="+w.publish())
	w.startCertManager()
	out, err := exec.CommandContext(ctx, "ctr", "--namespace", "k8s.io", "images", "tag", shared.Image, "ghcr.io/heirloom-dev/heirloom:dev").CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), "%s", out)
	w.leadToItself()
	t.Cleanup(w.removeClusterAPI)
	t.Cleanup(r.remove)
	r.step("all commands", w.follow)
}

// The recipe for an installation on kind is the same on every page.
func TestOneRecipeInstalls(t *testing.T) {
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect := NewWithT(t).Expect
	Expect(err).NotTo(HaveOccurred())
	recipes := map[string]string{}
	for _, page := range []string{"README.md", gettingStarted, quickStart, "deploy/chart/heirloom/README.md"} {
		content, err := os.ReadFile(filepath.Join(root, page))
		Expect(err).NotTo(HaveOccurred())
		for _, b := range markdown.Parse(content).Blocks {
			if strings.HasPrefix(b.Text, "git clone") {
				recipes[page] = b.Text
			}
		}
		Expect(recipes[page]).To(HavePrefix(recipes["README.md"]), page)
	}
	Expect(recipes["README.md"]).To(ContainSubstring("helm install"))
}

// providers are the providers that clusterctl installs: the name and the type of each, its directory in a repository, its part of Cluster
// API's module, and its program. The Docker provider is in its own module.
var providers = [][5]string{
	{"cluster-api", "CoreProvider", "cluster-api", "core", "core"},
	{"kubeadm", "BootstrapProvider", "bootstrap-kubeadm", "bootstrap/kubeadm", "kubeadm-bootstrap"},
	{"kubeadm", "ControlPlaneProvider", "control-plane-kubeadm", "controlplane/kubeadm", "kubeadm-control-plane"},
	{"docker", "InfrastructureProvider", "infrastructure-docker"},
}

// publish makes a repository from the modules of Cluster API, with the released manifests, except that no image is pulled: the Node has
// the programs. It returns a home directory with a clusterctl configuration for this repository.
func (w *walk) publish() (home string) {
	w.release.t.Helper()
	home = w.release.t.TempDir()
	module, err := controlplane.CAPIModule(w.ctx)
	w.Expect(err).NotTo(HaveOccurred())
	version, docker, manager, err := controlplane.DockerProvider(w.ctx)
	w.Expect(err).NotTo(HaveOccurred())
	config := "providers:\n"
	for _, p := range providers {
		dir, base, program := filepath.Join(home, p[2], version), docker, manager
		w.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		links := []string{filepath.Join(module, "metadata.yaml")}
		if p[3] != "" {
			base = filepath.Join(module, p[3])
			program, err = controlplane.ClusterAPIProgram(p[4])
			w.Expect(err).NotTo(HaveOccurred())
		} else {
			for _, template := range []string{"cluster-template-development.yaml", "clusterclass-quick-start.yaml"} {
				links = append(links, filepath.Join(docker, "templates", template))
			}
		}
		for _, file := range links {
			w.Expect(os.Symlink(file, filepath.Join(dir, filepath.Base(file)))).To(Succeed())
		}
		w.render(filepath.Join(base, "config", "default"), program, filepath.Join(dir, "components.yaml"))
		config += fmt.Sprintf("- {name: %s, type: %s, url: %q}\n", p[0], p[1], "file://"+filepath.Join(dir, "components.yaml"))
	}
	w.Expect(os.Mkdir(filepath.Join(home, ".cluster-api"), 0o700)).To(Succeed())
	w.Expect(os.WriteFile(filepath.Join(home, ".cluster-api", "clusterctl.yaml"), []byte(config), 0o600)).To(Succeed())
	return home
}

// mounted replaces the image of a manager with a mount of its program.
const mounted = `
resources: [%q]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/image, value: %q}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: add, path: /spec/template/spec/containers/0/command, value: [/manager]}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: program, mountPath: /manager}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: program, hostPath: {path: %q, type: File}}}
`

func (w *walk) render(base, program, target string) {
	w.release.t.Helper()
	dir := w.release.t.TempDir()
	relative, err := filepath.Rel(dir, base) // kustomize refuses an absolute path
	w.Expect(err).NotTo(HaveOccurred())
	content := fmt.Sprintf(mounted, relative, shared.Image, program)
	w.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600)).To(Succeed())
	rendered, _, err := controlplane.Kubectl(w.ctx, shared.Kubeconfig, "kustomize", dir)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(os.WriteFile(target, []byte(rendered), 0o600)).To(Succeed())
}

// leadToItself makes the cluster its own workload cluster: for Cluster API, whose control-plane manager ignores Secrets of this type, and
// for the reader.
func (w *walk) leadToItself() {
	w.release.t.Helper()
	kubeconfig, err := shared.PodKubeconfig()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(shared.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: quickCluster + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: quickCluster},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"value": kubeconfig},
	})).To(Succeed())
	w.Expect(os.WriteFile(filepath.Join(w.dir, quickCluster+".kubeconfig"), kubeconfig, 0o600)).To(Succeed())
}

// initialize acts as the Docker provider for the Cluster, and as kubeadm on its first Machine.
func (w *walk) initialize() {
	w.release.t.Helper()
	w.provisioned(w.one("infrastructure.cluster.x-k8s.io", "DevCluster", client.MatchingLabels{}),
		map[string]any{"controlPlaneEndpoint": map[string]any{"host": "192.0.2.10", "port": int64(6443)}})
	w.one("bootstrap.cluster.x-k8s.io", "KubeadmConfig", client.HasLabels{clusterv1.MachineControlPlaneLabel})
	w.Expect(shared.Create(w.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"},
	})).To(Succeed())
}

// join acts as the Docker provider for the Machine of the GPU pool. Its kubelet is real, but has no containers.
func (w *walk) join() {
	w.release.t.Helper()
	pool := client.MatchingLabels{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "gpu"}
	machine := w.one("infrastructure.cluster.x-k8s.io", "DevMachine", pool)
	resolve(w.release.t, machine.GetName()) // a kubelet resolves its own name
	kubelet, err := shared.ControlPlane.StartKubelet(w.ctx, controlplane.KubeletOptions{
		Name: machine.GetName(), Dir: w.release.t.TempDir(),
		RegisterWithTaints: []string{clusterv1.NodeUninitializedTaint.Key + "=:" + string(corev1.TaintEffectNoSchedule)},
	})
	w.Expect(err).NotTo(HaveOccurred())
	w.release.t.Cleanup(func() {
		w.Expect(kubelet.Stop()).To(Succeed())
		w.Expect(shared.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.GetName()}})).To(Succeed())
	})
	w.provisioned(machine, map[string]any{"providerID": "kubemark://" + machine.GetName()})
}

// one waits for the only object of this kind that the Cluster has, and returns it.
func (w *walk) one(group, kind string, options client.ListOption) *unstructured.Unstructured {
	w.release.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(group + "/v1beta2")
	list.SetKind(kind)
	w.Eventually(func(g Gomega) {
		g.Expect(shared.List(w.ctx, list, client.InNamespace(metav1.NamespaceDefault), options)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return &list.Items[0]
}

// provisioned reports that an infrastructure object is provisioned.
func (w *walk) provisioned(object *unstructured.Unstructured, spec map[string]any) {
	w.release.t.Helper()
	before := object.DeepCopy()
	for name, value := range spec {
		w.Expect(unstructured.SetNestedField(object.Object, value, "spec", name)).To(Succeed())
	}
	w.Expect(shared.Patch(w.ctx, object, client.MergeFrom(before))).To(Succeed())
	before = object.DeepCopy()
	w.Expect(unstructured.SetNestedField(object.Object, true, "status", "initialization", "provisioned")).To(Succeed())
	w.Expect(shared.Status().Patch(w.ctx, object, client.MergeFrom(before))).To(Succeed())
}

// anyName removes random parts: the endings of names, and the last writer.
func anyName(text string) string {
	return regexp.MustCompile(`(quick-start-gpu|last written by )[-a-z0-9]+`).ReplaceAllString(text, "$1…")
}

// removeClusterAPI removes everything that would disturb other tests: providers, conversions, and objects, without their finalizers.
func (w *walk) removeClusterAPI() {
	if w.release.t.Failed() {
		printed, _ := w.run(context.Background(), "kubectl get pods,cluster-api --all-namespaces\n"+
			"for n in capi capi-kubeadm-control-plane capd; do kubectl --namespace $n-system logs --tail 40 deployment/$n-controller-manager; done")
		w.release.t.Log(printed)
	}
	w.step("Cluster API is removed", func() {
		printed, code := w.run(context.Background(), `
kubectl delete --wait=false --selector cluster.x-k8s.io/provider mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterrolebindings,namespaces
kubectl patch $(kubectl get crds --output name | grep cluster.x-k8s.io) --type merge --patch '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
kubectl patch $(kubectl get cluster-api --output name) --type merge --patch '{"metadata":{"finalizers":null}}'
kubectl delete --wait=false cluster-api,secrets --all
kubectl --namespace kube-system delete configmap kubeadm-config`)
		w.Expect(code).To(BeZero(), printed)
	})
}
