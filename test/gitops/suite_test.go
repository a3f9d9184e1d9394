// SPDX-License-Identifier: Apache-2.0

// Package gitops tests Heirloom together with the tools that keep a cluster as Git has it, with their own code for applying, comparing
// and judging objects.
package gitops

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	patience = 30 * time.Second
	polling  = 100 * time.Millisecond
)

// argoCD is the path of the built program in hack/tools/argocd.
var argoCD string

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := controlplane.TempDir("gitops")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Searches for files begin in the module of the working directory.
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	argoCD = filepath.Join(dir, "argocd")
	build := exec.Command("go", "-C", filepath.Join("hack", "tools", "argocd"), "build", "-trimpath", "-o", argoCD, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building what Argo CD does: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// scene is a management cluster with Heirloom, which makes its own certificate. The program is not running yet, and its webhook
// configurations do not exist.
type scene struct {
	*stage.Stage
	*WithT
	t   *testing.T
	ctx context.Context
	// kubeconfig is the path of an administrator's kubeconfig.
	kubeconfig string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	g, dir := NewWithT(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	program, err := controlplane.Built(ctx, "heirloom")
	g.Expect(err).NotTo(HaveOccurred())
	certManager, err := controlplane.CertManagerCRDs()
	g.Expect(err).NotTo(HaveOccurred())
	crds, err := controlplane.CAPICRDPaths()
	g.Expect(err).NotTo(HaveOccurred())
	set, err := stage.New(ctx, stage.Options{
		Program: program, Dir: dir, WithoutWebhooks: true, WithoutProgram: true, Host: "localhost",
		Values:       map[string]any{"certificates": map[string]any{"mode": "self"}},
		ControlPlane: controlplane.Options{CRDPaths: append(crds, certManager)},
		Args: []string{
			"--webhook-cert-secret=" + stage.Namespace + "/heirloom-webhook-authority", "--webhook-cert-dns-names=localhost",
			"--webhook-configuration=heirloom", "--cluster-api-taint-propagation=enabled",
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(set.Stop()).To(Succeed())
		if t.Failed() {
			log, _ := os.ReadFile(set.HeirloomLog()) // the test has already failed
			t.Log(string(log))
		}
	})
	s := &scene{Stage: set, WithT: g, t: t, ctx: ctx, kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	g.Expect(s.WriteKubeconfig(s.kubeconfig, "admin", "system:masters")).To(Succeed())
	return s
}

// in returns the same scene for a subtest.
func (s *scene) in(t *testing.T) *scene {
	within := *s
	within.t, within.WithT = t, NewWithT(t)
	return &within
}

// live reads objects as they are stored.
func (s *scene) live(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	s.t.Helper()
	var lives []*unstructured.Unstructured
	for _, o := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		s.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(o), live)).To(Succeed())
		lives = append(lives, live)
	}
	return lives
}

// settle waits until the tool finds no drift, and until another apply writes nothing: this would never be true if the tool and Heirloom
// fought.
func (s *scene) settle(tool tool, objects []*unstructured.Unstructured) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		before := versions(s.live(objects))
		g.Expect(tool.drift(s, objects)).To(BeEmpty())
		g.Expect(tool.apply(s, objects)).To(BeEmpty(), "changed by the tool")
		g.Expect(versions(s.live(objects))).To(Equal(before))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

func versions(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+" "+o.GetName()+" "+o.GetResourceVersion())
	}
	return all
}

// tool keeps objects as they are in Git.
type tool interface {
	// apply applies the objects; it returns the objects that the tool reports as changed.
	apply(s *scene, objects []*unstructured.Unstructured) []string
	// drift returns the objects that differ from Git, with the differences.
	drift(s *scene, objects []*unstructured.Unstructured) []string
	// tracks reports whether the tool identifies its objects by this key.
	tracks(key string) bool
}

// copies returns copies, which a tool may change.
func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	copied := slices.Clone(objects)
	for i := range copied {
		copied[i] = copied[i].DeepCopy()
	}
	return copied
}
