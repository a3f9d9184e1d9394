// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// TestKubectl runs the built plugin in one world with Heirloom: as the pages of the documentation show it, with the rights of the chart's
// roles, with dry runs that webhooks answer, and with a release by the running program. The scripts of cmd/kubectl-heirloom test all
// other promises. Only the last subtest changes the Clusters prod and edge.
func TestKubectl(t *testing.T) {
	t.Parallel()
	w := newKubectlWorld(t)
	for _, command := range []struct {
		name string
		run  func(t *testing.T, w *kubectlWorld)
	}{
		{"docs", testKubectlDocs},
		{"rights", testKubectlRights},
		{"check", testKubectlCheck},
		{"diff", testKubectlDiff},
		{"release", testKubectlRelease},
	} {
		t.Run(command.name, func(t *testing.T) { command.run(t, w.in(t)) })
	}
}

// The webhooks answer the dry runs. The program has its serving certificate in files here, which the plugin cannot read, and each
// workload cluster has a Node that no Machine has.
func testKubectlCheck(t *testing.T, w *kubectlWorld) {
	out, stderr, code := w.kubectl(t, "check", "--wait=1m")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(out).To(ContainSubstring("\n9 ok, 1 warning, 1 unknown\n"))
	w.Expect(stderr).NotTo(ContainSubstring("Warning"), "the plugin hides the warnings that its dry runs cause")
}

// The plugin agrees with the program: when everything has inherited, it has nothing to write.
func testKubectlDiff(t *testing.T, w *kubectlWorld) {
	w.Eventually(func(g Gomega) {
		out, stderr, code := w.kubectl(t, "diff", "prod", "edge")
		g.Expect(out).To(HavePrefix("Nothing would change.\n"))
		g.Expect(stderr).To(BeEmpty())
		g.Expect(code).To(BeZero())
	}).WithTimeout(patience).Should(Succeed())
}

// The running program gives up its ownership in the released object, and then leaves the object alone.
func testKubectlRelease(t *testing.T, w *kubectlWorld) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "edge-web-1"}}
	w.get(m)
	w.Expect(ours(m)).NotTo(BeEmpty())
	out, stderr, code := w.kubectl(t, "release", "machine/edge-web-1", "--yes")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(out).To(ContainSubstring("machine.cluster.x-k8s.io/edge-web-1 released in namespace fleet\n"))
	w.get(m)
	w.Expect(ours(m)).To(BeEmpty())
}

// kubectlWorld is a management cluster with Heirloom and two Clusters, each with an API server of its own:
//
//	fleet/prod  of ClusterClass standard: control plane prod-cp, MachineDeployment prod-gpu with three Machines, MachinePool prod-spot
//	fleet/edge  without topology: MachineDeployment edge-web with one Machine
//
// Each Machine has a Node of its name, and each of the two Clusters has a Node that no Machine has: prod-stranger, edge-stranger.
type kubectlWorld struct {
	*scene
	prod, edge kubectlCluster
	// plugin is the path of the built program, kubeconfig the path of an administrator's kubeconfig.
	plugin, kubeconfig string
}

// kubectlCluster is a Cluster and its workload cluster.
type kubectlCluster struct {
	*clusterv1.Cluster
	*stage.Workload
}

// alsoSynced is the regular expression that the program's flags add to the synced labels.
const alsoSynced = "^team$"

func newKubectlWorld(t *testing.T) *kubectlWorld {
	t.Helper()
	s := newScene(t, stage.Options{
		Args:   []string{"--additional-sync-machine-labels=" + alsoSynced},
		Values: map[string]any{"pluginRoles": map[string]any{"create": true}},
	})
	w := &kubectlWorld{scene: s, kubeconfig: s.adminKubeconfig()}
	var err error
	w.plugin, err = controlplane.Built(w.ctx, "kubectl-heirloom")
	w.Expect(err).NotTo(HaveOccurred())
	w.inFleet(t, w.kubeconfig)
	w.ensureNamespace(fleetName)
	w.deploy()
	w.populate()
	return w
}

// in returns the same world inside a subtest.
func (w *kubectlWorld) in(t *testing.T) *kubectlWorld {
	within := *w
	within.scene = w.scene.in(t)
	return &within
}

// kubectl runs the plugin as the world's administrator, in namespace fleet.
func (w *kubectlWorld) kubectl(t *testing.T, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	return w.run(t, w.kubeconfig, args...)
}

// run runs the plugin with a kubeconfig; see kubeconfigOf.
func (w *kubectlWorld) run(t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 2*patience)
	defer cancel()
	var out, errOut strings.Builder
	command := exec.CommandContext(ctx, w.plugin, args...)
	command.Stdout, command.Stderr = &out, &errOut
	// The plugin caches discovery below the home directory.
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+w.dir)
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("kubectl heirloom %s: %v (%v)\n%s", strings.Join(args, " "), err, ctx.Err(), errOut.String())
	}
	return out.String(), withoutProgress(errOut.String()), command.ProcessState.ExitCode()
}

// kubeconfigOf writes a kubeconfig for another user, who has only the rights that the test grants.
func (w *kubectlWorld) kubeconfigOf(t *testing.T, user string, groups ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	NewWithT(t).Expect(w.WriteKubeconfig(path, user, groups...)).To(Succeed())
	w.inFleet(t, path)
	return path
}

// inFleet sets fleet as the namespace of a kubeconfig's contexts.
func (w *kubectlWorld) inFleet(t *testing.T, path string) {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.LoadFromFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	for _, context := range config.Contexts {
		context.Namespace = fleetName
	}
	g.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
}
