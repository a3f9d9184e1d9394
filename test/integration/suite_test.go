// SPDX-License-Identifier: Apache-2.0

// Package integration tests Heirloom as operators run it: the program is a process of its own, built with the race
// detector, with the rights of its ServiceAccount, installed from the Helm chart into a real API server.
package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	patience = time.Minute
	polling  = 50 * time.Millisecond
)

// program is the heirloom binary under test, and root the directory of the repository.
var program, root string

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
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	ofShared := endShared()
	started, err := planes.Stop()
	if err := errors.Join(ofShared, err); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	fmt.Printf("%d API servers were started\n", started)
	return code
}

func build(dir string) error {
	var err error
	if root, err = controlplane.RepositoryRoot(context.Background()); err != nil {
		return err
	}
	program = filepath.Join(dir, "heirloom")
	command := exec.Command("go", "build", "-race", "-trimpath", "-o", program, "github.com/heirloom-dev/heirloom/cmd/heirloom")
	command.Env = append(os.Environ(), "CGO_ENABLED=1") // the race detector needs it
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program under test: %w\n%s", err, out)
	}
	return nil
}

// scene is a stage for one test.
type scene struct {
	*stage.Stage
	*gomega.WithT
	t   *testing.T
	ctx context.Context
	// dir is the directory of the test's own files.
	dir string
	// audit is the API server's audit log since the start of the test.
	audit tail
}

// newScene sets up a stage until the end of the test, on an API server that no other test uses at the same time.
func newScene(t *testing.T, options stage.Options) *scene {
	t.Helper()
	return sceneOn(t, lend(t, options.ControlPlane), options)
}

// taintGate sets the state of Cluster API's feature gate. Without the flag, the program detects the state some seconds after it sees the
// first Machine with taints, in the middle of a test, and then writes the taints again.
const taintGate = "--cluster-api-taint-propagation="

// sceneOn sets up a stage on an API server until the end of the test. It leaves the API server as it then is.
func sceneOn(t *testing.T, on *controlplane.Lent, options stage.Options) *scene {
	t.Helper()
	s := &scene{WithT: gomega.NewWithT(t), t: t, ctx: t.Context(), dir: t.TempDir(), audit: tailOf(on.AuditLog)}
	options.On, options.Program, options.Dir = on.ControlPlane, program, s.dir
	if !slices.ContainsFunc(options.Args, func(arg string) bool { return strings.HasPrefix(arg, taintGate) }) {
		options.Args = append(slices.Clip(options.Args), taintGate+"enabled")
	}
	t.Cleanup(func() { expectNoRace(t, tail{path: filepath.Join(s.dir, "heirloom.log")}) })
	var err error
	if s.Stage, err = stage.New(s.ctx, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the stage: %v", err)
		}
	})
	return s
}

// in returns the same scene inside a subtest.
func (s *scene) in(t *testing.T) *scene {
	within := *s
	within.WithT, within.t = gomega.NewWithT(t), t
	return &within
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

// adminKubeconfig writes a kubeconfig file of an administrator and returns its path.
func (s *scene) adminKubeconfig() string {
	s.t.Helper()
	path := filepath.Join(s.dir, "admin.kubeconfig")
	s.Expect(s.WriteKubeconfig(path, "admin", "system:masters")).To(gomega.Succeed())
	return path
}

// byKubectl runs kubectl as an administrator, and returns its standard error, with the warnings.
func (s *scene) byKubectl(args ...string) string {
	s.t.Helper()
	_, stderr, err := controlplane.Kubectl(s.ctx, s.adminKubeconfig(), args...)
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return stderr
}

// render renders the chart with these values.
func render(t *testing.T, values map[string]any) []unstructured.Unstructured {
	t.Helper()
	rendered, err := controlplane.RenderChart(t.Context(), filepath.Join(root, "deploy", "chart", "heirloom"),
		controlplane.ChartOptions{Namespace: stage.Namespace, Values: values})
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	return rendered
}

func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		s.Expect(s.Client.Create(s.ctx, object)).To(gomega.Succeed())
	}
}

// ensureNamespace creates a namespace unless it exists.
func (s *scene) ensureNamespace(name string) {
	s.t.Helper()
	err := s.Client.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	s.Expect(client.IgnoreAlreadyExists(err)).To(gomega.Succeed())
}

func (s *scene) get(object client.Object) {
	s.t.Helper()
	s.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
}

// update changes an object as an administrator, with one merge patch.
func (s *scene) update(object client.Object, change func()) {
	s.t.Helper()
	before, ok := object.DeepCopyObject().(client.Object)
	s.Expect(ok).To(gomega.BeTrue())
	change()
	s.Expect(s.Client.Patch(s.ctx, object, client.MergeFrom(before))).To(gomega.Succeed())
}

// eventually reads the object again and again until it satisfies the check.
func (s *scene) eventually(object client.Object, check func(g gomega.Gomega)) {
	s.t.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
		check(g)
	}).WithTimeout(patience).WithPolling(polling).Should(gomega.Succeed())
}

// declared returns every kind of content that a MachineDeployment's template can propagate.
func declared() stage.Declared {
	return stage.Declared{
		Labels: map[string]string{
			"team":                             "ml",
			"node.cluster.x-k8s.io/pool":       "gpu",
			"node-role.kubernetes.io/worker":   "",
			"node-restriction.kubernetes.io/z": "1",
		},
		Annotations: map[string]string{
			"note":                       "for humans",
			"node.cluster.x-k8s.io/note": "for nodes",
			taint.AlwaysAnnotation:       "annotated=yes:NoSchedule",
			taint.InitializeAnnotation:   "warming=up:NoSchedule",
		},
		Taints: append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "booting=yes:PreferNoSchedule")...),
	}
}

// family is a Cluster with a MachineDeployment, MachineSet and Machine.
type family struct {
	cluster *clusterv1.Cluster
	md      *clusterv1.MachineDeployment
	ms      *clusterv1.MachineSet
	m       *clusterv1.Machine
}

// settle creates a family whose MachineDeployment declares d, in the Cluster of the management cluster itself. It creates the children
// without entries.
func (s *scene) settle(name string, d stage.Declared) family {
	s.t.Helper()
	return s.settleIn(stage.Home, name, d)
}

// settleIn creates a family in the Cluster with this name, in the namespace with the same name. Several families may share a Cluster.
func (s *scene) settleIn(cluster, name string, d stage.Declared) family {
	s.t.Helper()
	s.ensureNamespace(cluster)
	var f family
	f.cluster = stage.Cluster(cluster, cluster)
	s.Expect(client.IgnoreAlreadyExists(s.Client.Create(s.ctx, f.cluster))).To(gomega.Succeed())
	s.get(f.cluster)
	f.md = stage.MachineDeployment(f.cluster, name, d)
	s.create(f.md)
	f.ms = stage.MachineSet(f.md, name)
	s.create(f.ms)
	f.m = stage.Machine(f.ms, name)
	s.create(f.m)
	return f
}

// ours returns the fields that the field manager heirloom has applied.
func ours(object client.Object) string {
	for _, entry := range object.GetManagedFields() {
		if managedfields.IsOurs(entry) {
			return entry.FieldsV1.GetRawString()
		}
	}
	return ""
}

// startKubelet starts a kubelet that runs at most until the end of the test.
func (s *scene) startKubelet(options controlplane.KubeletOptions) *controlplane.Kubelet {
	s.t.Helper()
	options.Dir = s.dir
	kubelet, err := s.StartKubelet(s.ctx, options)
	s.Expect(err).NotTo(gomega.HaveOccurred())
	s.t.Cleanup(func() {
		if err := kubelet.Stop(); err != nil {
			s.t.Errorf("stopping a kubelet: %v", err)
		}
	})
	return kubelet
}

// kubelet returns a client with the rights of a Node's kubelet in the management cluster.
func (s *scene) kubelet(node string) client.Client {
	s.t.Helper()
	return s.kubeletOf(s.ControlPlane, node)
}

// kubeletOf returns a client with the rights of a Node's kubelet in this cluster.
func (s *scene) kubeletOf(cluster *controlplane.ControlPlane, node string) client.Client {
	s.t.Helper()
	config, err := cluster.User("system:node:"+node, "system:nodes")
	s.Expect(err).NotTo(gomega.HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return c
}
