// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// quickCluster is the Cluster of the quick start, in the namespace "default".
const quickCluster = "quick-start"

// startCertManager runs cert-manager's controllers until the test ends.
func (r *reader) startCertManager() {
	r.t.Helper()
	crds, err := controlplane.CertManagerCRDs()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(shared.InstallCRDs(r.ctx, crds)).To(Succeed())
	program, err := controlplane.Built(r.ctx, "cert-manager")
	r.Expect(err).NotTo(HaveOccurred())
	process, err := controlplane.StartProcess(r.ctx, program,
		[]string{"--kubeconfig=" + shared.Kubeconfig}, filepath.Join(r.t.TempDir(), "cert-manager.log"))
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() { r.Expect(process.Stop()).To(Succeed()) })
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
func (r *reader) publish() (home string) {
	r.t.Helper()
	home = r.t.TempDir()
	module, err := controlplane.CAPIModule(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
	version, docker, manager, err := controlplane.DockerProvider(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
	image := "heirloom.test/cluster-api:" + version // kubectl heirloom check reads the version
	r.tag(image)
	config := "providers:\n"
	for _, p := range providers {
		dir, base, program := filepath.Join(home, p[2], version), docker, manager
		r.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		links := []string{filepath.Join(module, "metadata.yaml")}
		if p[3] != "" {
			base = filepath.Join(module, p[3])
			program, err = controlplane.ClusterAPIProgram(p[4])
			r.Expect(err).NotTo(HaveOccurred())
		} else {
			for _, template := range []string{"cluster-template-development.yaml", "clusterclass-quick-start.yaml"} {
				links = append(links, filepath.Join(docker, "templates", template))
			}
		}
		for _, file := range links {
			r.Expect(os.Symlink(file, filepath.Join(dir, filepath.Base(file)))).To(Succeed())
		}
		r.render(filepath.Join(base, "config", "default"), image, program, filepath.Join(dir, "components.yaml"))
		config += fmt.Sprintf("- {name: %s, type: %s, url: %q}\n", p[0], p[1], "file://"+filepath.Join(dir, "components.yaml"))
	}
	r.Expect(os.Mkdir(filepath.Join(home, ".cluster-api"), 0o700)).To(Succeed())
	r.Expect(os.WriteFile(filepath.Join(home, ".cluster-api", "clusterctl.yaml"), []byte(config), 0o600)).To(Succeed())
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

func (r *reader) render(base, image, program, target string) {
	r.t.Helper()
	dir := r.t.TempDir()
	relative, err := filepath.Rel(dir, base) // kustomize refuses an absolute path
	r.Expect(err).NotTo(HaveOccurred())
	content := fmt.Sprintf(mounted, relative, image, program)
	r.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600)).To(Succeed())
	rendered, _, err := controlplane.Kubectl(r.ctx, shared.Kubeconfig, "kustomize", dir)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(os.WriteFile(target, []byte(rendered), 0o600)).To(Succeed())
}

// leadToItself makes the cluster its own workload cluster: for Cluster API, whose control-plane manager ignores Secrets of this type, and
// for the reader.
func (r *reader) leadToItself() {
	r.t.Helper()
	kubeconfig, err := shared.PodKubeconfig()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(shared.Create(r.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: quickCluster + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: quickCluster},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"value": kubeconfig},
	})).To(Succeed())
	r.Expect(os.WriteFile(filepath.Join(r.dir, quickCluster+".kubeconfig"), kubeconfig, 0o600)).To(Succeed())
}

// initialize acts as the Docker provider for the Cluster, and as kubeadm on its first Machine.
func (r *reader) initialize() {
	r.t.Helper()
	r.provisioned(r.one("infrastructure.cluster.x-k8s.io", "DevCluster", client.MatchingLabels{}),
		map[string]any{"controlPlaneEndpoint": map[string]any{"host": "192.0.2.10", "port": int64(6443)}})
	r.one("bootstrap.cluster.x-k8s.io", "KubeadmConfig", client.HasLabels{clusterv1.MachineControlPlaneLabel})
	r.Expect(shared.Create(r.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"},
	})).To(Succeed())
}

// join acts as the Docker provider for the Machine of a pool, and returns its name. The kubelet of the Node is real, but has no containers.
func (r *reader) join(pool string) (name string) {
	r.t.Helper()
	machine := r.one("infrastructure.cluster.x-k8s.io", "DevMachine",
		client.MatchingLabels{clusterv1.ClusterTopologyMachineDeploymentNameLabel: pool})
	name = machine.GetName()
	resolve(r.t, name) // a kubelet resolves its own name
	kubelet, err := shared.StartKubelet(r.ctx, controlplane.KubeletOptions{
		Name: name, Dir: r.t.TempDir(),
		RegisterWithTaints: []string{
			clusterv1.NodeUninitializedTaint.Key + "=:" + string(corev1.TaintEffectNoSchedule),
			"example.com/hollow=:" + string(corev1.TaintEffectNoSchedule), // keeps Heirloom's Pods away, which would seem to run there
		},
	})
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() {
		r.Expect(kubelet.Stop()).To(Succeed())
		r.Expect(shared.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	r.provisioned(machine, map[string]any{"providerID": "kubemark://" + name})
	return name
}

// one waits for the only object of this kind that the Cluster has, and returns it.
func (r *reader) one(group, kind string, options client.ListOption) *unstructured.Unstructured {
	r.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(group + "/v1beta2")
	list.SetKind(kind)
	r.Eventually(func(g Gomega) {
		g.Expect(shared.List(r.ctx, list, client.InNamespace(metav1.NamespaceDefault), options)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return &list.Items[0]
}

// provisioned reports that an infrastructure object is provisioned.
func (r *reader) provisioned(object *unstructured.Unstructured, spec map[string]any) {
	r.t.Helper()
	before := object.DeepCopy()
	for name, value := range spec {
		r.Expect(unstructured.SetNestedField(object.Object, value, "spec", name)).To(Succeed())
	}
	r.Expect(shared.Patch(r.ctx, object, client.MergeFrom(before))).To(Succeed())
	before = object.DeepCopy()
	r.Expect(unstructured.SetNestedField(object.Object, true, "status", "initialization", "provisioned")).To(Succeed())
	r.Expect(shared.Status().Patch(r.ctx, object, client.MergeFrom(before))).To(Succeed())
}

// removeClusterAPI removes everything that would disturb other tests: providers, conversions, and objects, without their finalizers.
func (r *reader) removeClusterAPI() {
	if r.t.Failed() {
		printed, _ := r.run(context.Background(), "kubectl get pods,cluster-api --all-namespaces\n"+
			"for n in capi capi-kubeadm-control-plane capd; do kubectl --namespace $n-system logs --tail 40 deployment/$n-controller-manager; done")
		r.t.Log(printed)
	}
	r.step("Cluster API is removed", func() {
		printed, code := r.run(context.Background(), `
kubectl delete --wait=false --selector cluster.x-k8s.io/provider \
	mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterrolebindings,namespaces
kubectl patch $(kubectl get crds --output name | grep cluster.x-k8s.io) --type merge \
	--patch '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
kubectl patch $(kubectl get cluster-api --output name) --type merge --patch '{"metadata":{"finalizers":null}}'
kubectl delete --wait=false cluster-api,secrets --all
kubectl --namespace kube-system delete configmap kubeadm-config`)
		r.Expect(code).To(BeZero(), printed)
	})
}

// resolve maps the name of a host to this machine until the test ends, only inside these namespaces.
func resolve(t *testing.T, host string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	hosts, err := os.ReadFile("/etc/hosts")
	Expect(err).NotTo(HaveOccurred())
	own := filepath.Join(t.TempDir(), "hosts")
	Expect(os.WriteFile(own, fmt.Appendf(hosts, "\n127.0.0.1 %s\n", host), 0o644)).To(Succeed())
	Expect(syscall.Mount(own, "/etc/hosts", "", syscall.MS_BIND, "")).To(Succeed())
	t.Cleanup(func() { Expect(syscall.Unmount("/etc/hosts", 0)).To(Succeed()) })
}
