// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// TestKubectl runs the built plugin in one world, for the promises that need API servers with Heirloom: the plugin's rights, dry runs that
// webhooks answer, writes that match the output of diff, a release while Heirloom runs, and the pages of the documentation. The scripts
// of cmd/kubectl-heirloom test all other promises. A subtest changes only objects of its own, and leaves no new objects in the Clusters
// prod and edge.
func TestKubectl(t *testing.T) {
	t.Parallel()
	w := newKubectlWorld(t)
	for _, command := range []struct {
		name string
		run  func(t *testing.T, w *kubectlWorld)
	}{
		{"check", testKubectlCheck}, // first, because it checks the whole world
		{"diff", testKubectlDiff},
		{"release", testKubectlRelease},
		{"docs", testKubectlDocs},
		{"rights", testKubectlRights},
	} {
		t.Run(command.name, func(t *testing.T) { command.run(t, w.in(t)) })
	}
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

// pluginRun is one run of the plugin.
type pluginRun struct {
	args []string
	// kubeconfig is the path of a kubeconfig. Empty: the administrator's kubeconfig; see kubeconfigOf for other users.
	kubeconfig string
	// env has additional variables, for example KUBECTL_EXTERNAL_DIFF=…
	env   []string
	stdin io.Reader
}

// kubectl runs the plugin as the world's administrator, in namespace fleet.
func (w *kubectlWorld) kubectl(t *testing.T, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	return w.run(t, pluginRun{args: args})
}

// run runs the plugin.
func (w *kubectlWorld) run(t *testing.T, run pluginRun) (stdout, stderr string, exitCode int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 2*patience)
	defer cancel()
	if run.kubeconfig == "" {
		run.kubeconfig = w.kubeconfig
	}
	var out, errOut strings.Builder
	command := exec.CommandContext(ctx, w.plugin, run.args...)
	command.Stdin, command.Stdout, command.Stderr = run.stdin, &out, &errOut
	// The plugin caches discovery below the home directory.
	command.Env = append(os.Environ(), "KUBECONFIG="+run.kubeconfig, "HOME="+w.dir)
	command.Env = append(command.Env, run.env...)
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("kubectl heirloom %s: %v (%v)\n%s", strings.Join(run.args, " "), err, ctx.Err(), errOut.String())
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
