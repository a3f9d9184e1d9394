// SPDX-License-Identifier: Apache-2.0

// Package integration tests Heirloom as operators run it: the program as a process of its own, built with the race
// detector, with the rights of its ServiceAccount, installed from the Helm chart into a real API server.
package integration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const patience = 30 * time.Second

// program is the heirloom binary under test.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "heirloom")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "heirloom")
	build := exec.Command("go", "build", "-race", "-o", program, "github.com/heirloom-dev/heirloom/cmd/heirloom")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the program under test: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// scene is a stage for one test.
type scene struct {
	*stage.Stage
	*gomega.WithT
	t   *testing.T
	ctx context.Context
	dir string
}

// newScene sets a stage that is torn down with the test.
func newScene(t *testing.T, options stage.Options) *scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "scene")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	options.Program, options.Dir = program, dir
	s, err := stage.New(ctx, options)
	if err != nil {
		cancel()
		showLog(t, filepath.Join(dir, "heirloom.log"))
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		defer os.RemoveAll(dir)
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the stage: %v", err)
		}
		if t.Failed() {
			showLog(t, s.HeirloomLog())
		}
		expectNoRace(t, s.HeirloomLog())
	})
	return &scene{Stage: s, WithT: gomega.NewWithT(t), t: t, ctx: ctx, dir: dir}
}

// in is the same scene inside a subtest.
func (s *scene) in(t *testing.T) *scene {
	return &scene{Stage: s.Stage, WithT: gomega.NewWithT(t), t: t, ctx: s.ctx, dir: s.dir}
}

func (s *scene) freePort() int {
	s.t.Helper()
	port, err := controlplane.FreePort()
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return port
}

func (s *scene) read(path string) string {
	s.t.Helper()
	content, err := os.ReadFile(path)
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return string(content)
}

func showLog(t *testing.T, path string) {
	if log, err := os.ReadFile(path); err == nil {
		t.Logf("log of heirloom:\n%s", log)
	}
}

func expectNoRace(t *testing.T, path string) {
	log, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for _, fault := range []string{"DATA RACE", "Panic in an admission handler", "Observed a panic"} {
		if bytes.Contains(log, []byte(fault)) {
			t.Errorf("the log of heirloom has %q:\n%s", fault, log)
		}
	}
}

func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		s.Expect(s.Client.Create(s.ctx, object)).To(gomega.Succeed())
	}
}

func (s *scene) get(object client.Object) {
	s.t.Helper()
	s.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
}

// update changes an object as an administrator does, with one merge patch.
func (s *scene) update(object client.Object, change func()) {
	s.t.Helper()
	before, ok := object.DeepCopyObject().(client.Object)
	s.Expect(ok).To(gomega.BeTrue())
	change()
	s.Expect(s.Client.Patch(s.ctx, object, client.MergeFrom(before))).To(gomega.Succeed())
}

// eventually waits until the object, read anew each time, satisfies the check.
func (s *scene) eventually(object client.Object, check func(g gomega.Gomega)) {
	s.t.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
		check(g)
	}).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(gomega.Succeed())
}

// family is a Cluster with a MachineDeployment, MachineSet and Machine in a namespace of their own.
type family struct {
	cluster *clusterv1.Cluster
	md      *clusterv1.MachineDeployment
	ms      *clusterv1.MachineSet
	m       *clusterv1.Machine
}

// settle creates a family whose MachineDeployment declares d. Every child is created bare, after Heirloom could see its
// owner.
func (s *scene) settle(name string, d stage.Declared) family {
	s.t.Helper()
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	var f family
	f.cluster = stage.Cluster(name, name)
	s.create(f.cluster)
	f.md = stage.MachineDeployment(f.cluster, name, d)
	s.create(f.md)
	f.ms = stage.MachineSet(f.md, name)
	s.create(f.ms)
	f.m = stage.Machine(f.ms, name)
	s.create(f.m)
	return f
}

// admit creates an object as soon as the program's cache has what it takes for it to inherit in that write. There may be no
// loop that would make up for it.
func (s *scene) admit(c client.Client, object client.Object) {
	s.t.Helper()
	s.Eventually(func(g gomega.Gomega) {
		probe, ok := object.DeepCopyObject().(client.Object)
		g.Expect(ok).To(gomega.BeTrue())
		g.Expect(c.Create(s.ctx, probe, client.DryRunAll)).To(gomega.Succeed())
		_, tracked := probe.GetAnnotations()[clusterv1.TaintsFromMachineAnnotation]
		g.Expect(tracked || ours(probe) != "").To(gomega.BeTrue(), "it has inherited nothing yet")
	}).WithTimeout(patience).Should(gomega.Succeed())
	s.Expect(c.Create(s.ctx, object)).To(gomega.Succeed())
}

// kubelet is a client with the rights of a Node's kubelet.
func (s *scene) kubelet(node string) client.Client {
	s.t.Helper()
	config, err := s.User("system:node:"+node, "system:nodes")
	s.Expect(err).NotTo(gomega.HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return c
}
