// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// updateDocs is the variable with which the test updates the pages instead of comparing them; hack/update-docs.sh sets it.
const updateDocs = "HEIRLOOM_UPDATE_DOCS"

// TestKubectl runs the built plugin with Heirloom, through kubectl: with the rights of the chart's roles, with dry runs that webhooks answer,
// as the pages of the documentation show it, and with a cleanup by the running program. The scripts of cmd/kubectl-heirloom test all other
// promises.
func TestKubectl(t *testing.T) {
	t.Parallel()
	w := newKubectlWorld(t)
	w.Eventually(func() string { return w.shell(w.kubeconfig, "kubectl heirloom diff prod edge") }).WithTimeout(patience).
		Should(Equal("Nothing would change.\n"), "the plugin agrees with the program: everything has inherited")

	// The program has its serving certificate in files here, which the plugin cannot read, and each workload cluster has a Node without Machine.
	out := w.shell(w.kubeconfig, "kubectl heirloom check --wait=1m")
	w.Expect(out).To(And(ContainSubstring("\n10 ok, 1 warning, 1 unknown\n"), Not(ContainSubstring("Warning"))), "the plugin hides warnings of its dry runs")
	w.Expect(w.shell(w.kubeconfig, "kubectl __complete heirloom explain machine/edge 2>/dev/null")).To(ContainSubstring("machine/edge-web-1\n"))
	for _, page := range []string{"README.md", filepath.Join("docs", "kubectl.md")} {
		w.expectPage(filepath.Join(root, page))
	}
	w.expectRights()

	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "edge-web-1"}}
	w.get(m)
	w.Expect(ours(m)).NotTo(BeEmpty())
	out = w.shell(w.kubeconfig, "kubectl heirloom cleanup machine/edge-web-1 --yes")
	w.Expect(out).To(ContainSubstring("machine.cluster.x-k8s.io/edge-web-1 cleaned up in namespace fleet\n"))
	w.get(m)
	w.Expect(ours(m)).To(BeEmpty())
}

// expectRights expects that the chart's two ClusterRoles for users of the plugin suffice: the first for objects of the management cluster,
// both for a Node of a workload cluster, whose kubeconfig is a Secret.
func (w *kubectlWorld) expectRights() {
	w.t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	w.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "plugin-reader"}, Subjects: subjects, RoleRef: role("heirloom-plugin")})
	reader := w.kubeconfigOf("reader")
	explain := func(object string) string {
		return w.shell(reader, "kubectl heirloom explain "+object+" node.cluster.x-k8s.io/pool >/dev/null; echo $?")
	}
	w.Expect(explain("machine/prod-gpu-1")).To(Equal("0\n"))
	w.Expect(explain("node/prod-gpu-1")).To(And(ContainSubstring(`cannot get resource "secrets"`), HaveSuffix("\n2\n")))
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "plugin-reader"}, Subjects: subjects, RoleRef: role("heirloom-plugin-nodes"),
	})
	w.Expect(explain("node/prod-gpu-1")).To(Equal("0\n"))
}

// expectPage runs the commands of a page like a reader, in the directory testdata/kubectl: the page shows their output.
func (w *kubectlWorld) expectPage(file string) {
	w.t.Helper()
	page, before := w.read(file), ""
	for _, block := range markdown.Parse([]byte(page)).Blocks {
		if block.Language != "console" {
			continue
		}
		for _, shown := range strings.Split("\n"+block.Text, "\n$ ")[1:] {
			line, output, _ := strings.Cut(strings.TrimSuffix(shown, "\n")+"\n", "\n")
			command := line
			if line == "echo $?" {
				command = before + " >/dev/null 2>&1; " + line
			}
			got := steady(w.shell(w.kubeconfig, command))
			before = line
			switch {
			case columns.ReplaceAllString(got, "  ") == columns.ReplaceAllString(steady(output), "  "):
			case os.Getenv(updateDocs) != "":
				page = strings.Replace(page, "\n$ "+line+"\n"+output, "\n$ "+line+"\n"+got, 1)
				w.Expect(os.WriteFile(file, []byte(page), 0o600)).To(Succeed())
			default:
				w.t.Errorf("%s: %q prints\n%s\nand not\n%s\nhack/update-docs.sh plugin writes the output into the page", file, line, got, output)
			}
		}
	}
}

// columns are the spaces between columns, whose width depends on the parts that steady replaces.
var columns = regexp.MustCompile(` {2,}`)

// steady replaces the parts of an output that differ in each run.
func steady(output string) string {
	for _, varies := range []struct{ what, becomes string }{
		{`127\.0\.0\.1:\d+`, "127.0.0.1:6443"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, "2026-01-01T00:00:00Z"},
		{`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`, "00000000-0000-0000-0000-000000000000"},
		{`(?m)[ \t]+$`, ""},
	} {
		output = regexp.MustCompile(varies.what).ReplaceAllString(output, varies.becomes)
	}
	return output
}

// kubectlWorld is a management cluster with Heirloom and the fleet of testdata/fleet.yaml. Each Cluster has a workload cluster with a Node for each Machine, and a Node that no Machine has.
type kubectlWorld struct {
	*scene
	kubeconfig string // of an administrator
}

func newKubectlWorld(t *testing.T) *kubectlWorld {
	t.Helper()
	s := newScene(t, stage.Options{
		Args: []string{"--additional-sync-machine-labels=^team$"}, Values: map[string]any{"pluginRoles": map[string]any{"create": true}},
	})
	w := &kubectlWorld{scene: s}
	w.kubeconfig = w.kubeconfigOf("admin", "system:masters")
	// The plugin reads settings from Deployments. No Pods of them run: Heirloom is a process of its own with the same settings.
	for _, object := range render(t, map[string]any{"additionalSyncMachineLabels": []any{"^team$"}}) {
		if object.GetKind() == "Deployment" {
			w.create(&object)
			w.rolledOut(&object)
		}
	}
	w.populate()
	return w
}

// rolledOut sets the status of a Deployment like its controller.
func (w *kubectlWorld) rolledOut(object *unstructured.Unstructured) {
	w.t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	w.get(deployment)
	replicas := *deployment.Spec.Replicas
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"}},
	}
	w.Expect(w.Client.Status().Update(w.ctx, deployment)).To(Succeed())
}

// populate creates the fleet, with a workload cluster for each Cluster.
func (w *kubectlWorld) populate() {
	w.t.Helper()
	workloads := map[string]*stage.Workload{}
	node := func(cluster, name string) {
		w.Expect(workloads[cluster].Client.Create(w.ctx, stage.Node(name), client.FieldOwner("kubelet"))).To(Succeed())
	}
	w.createFleet(func(u *unstructured.Unstructured) {
		switch name := u.GetName(); u.GetKind() {
		case "Deployment":
			w.rolledOut(u)
		case "Cluster":
			cluster := stage.Cluster(fleetName, name)
			w.get(cluster)
			workloads[name] = w.workload(cluster)
			node(name, name+"-stranger")
		case "Machine":
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name}}
			w.get(m)
			node(m.Spec.ClusterName, name)
			m.Status.NodeRef.Name = name
			w.Expect(w.Client.Status().Update(w.ctx, m)).To(Succeed())
		}
	})
	node("prod", "prod-spot-1")
	for _, dependant := range dependants() {
		w.Expect(workloads["prod"].Client.Create(w.ctx, dependant)).To(Succeed())
	}
}

// dependants are objects that depend on a label of Nodes.
func dependants() []client.Object {
	const key = "node.cluster.x-k8s.io/pool"
	trains := map[string]string{"app": "training"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: trains}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{key: "gpu"}, Containers: []corev1.Container{{Name: "run", Image: "run"}},
	}}
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu", "spot"}}}}}
	return []client.Object{
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "training"},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: trains}, Template: pod},
		},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "scratch"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/scratch"}},
			NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}},
		}},
	}
}

// shell runs a line like a terminal, in the directory testdata/kubectl, and returns its output without the lines about waiting, which the plugin
// prints on a busy machine.
func (w *kubectlWorld) shell(kubeconfig, line string) string {
	w.t.Helper()
	plugin, err := controlplane.Built(w.ctx, "kubectl-heirloom")
	w.Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(w.ctx, "sh", "-c", line)
	path := strings.Join([]string{os.Getenv("HEIRLOOM_TOOLS"), filepath.Dir(plugin), os.Getenv("PATH")}, string(os.PathListSeparator))
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+w.dir, "PATH="+path) // the plugin caches discovery below HOME
	command.Dir = filepath.Join("testdata", "kubectl")
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return regexp.MustCompile(`(?m)^[A-Z].* …\n`).ReplaceAllString(string(out), "")
}

// kubeconfigOf writes a kubeconfig for a user, in namespace fleet.
func (w *kubectlWorld) kubeconfigOf(user string, groups ...string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, fmt.Sprint(user, ".kubeconfig"))
	w.Expect(w.WriteKubeconfig(path, user, groups...)).To(Succeed())
	config, err := clientcmd.LoadFromFile(path)
	w.Expect(err).NotTo(HaveOccurred())
	for _, context := range config.Contexts {
		context.Namespace = fleetName
	}
	w.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}
