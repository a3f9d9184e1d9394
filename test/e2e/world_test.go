// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built programs, from the chart to the Node.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const patience = time.Minute

// planes lends one management cluster to one test at a time, so the tests are not parallel.
var planes controlplane.Pool

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	code := m.Run()
	if _, err := planes.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

// world has a management cluster with Heirloom, Cluster API's own managers, and Clusters in memory.
type world struct {
	*stage.Stage
	*WithT
	t   *testing.T
	ctx context.Context
	dir string
	// auditLog is the path of the API server's audit log.
	auditLog string
	managers *clusterapi.Managers
}

// newWorld makes a world, with a Namespace for each name. args are Heirloom's arguments.
func newWorld(t *testing.T, args []string, namespaces ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, WithT: NewWithT(t), ctx: ctx, dir: worldDir(t)}
	w.SetDefaultEventuallyTimeout(2 * patience)
	w.SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	w.Stage, w.auditLog = newStage(t, w.dir, args)
	var err error
	w.managers, err = clusterapi.Start(ctx, w.ControlPlane, clusterapi.Options{Dir: w.dir, Kubeadm: true, InMemory: true})
	w.Expect(err).NotTo(HaveOccurred())
	pools, err := clusterapi.StartPools(ctx, w.AdminConfig())
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { w.Expect(errors.Join(w.managers.Stop(), pools.Stop())).To(Succeed()) })
	for _, name := range namespaces {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

// worldDir returns a directory for logs, which a failure prints.
func worldDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "world") // shorter than t.TempDir
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		for _, name := range []string{"heirloom.log", "core.log", "kubeadm-bootstrap.log", "kubeadm-control-plane.log", "in-memory.log"} {
			if log, err := os.ReadFile(filepath.Join(dir, name)); err == nil && t.Failed() {
				t.Logf("%s:\n%s", name, log)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// lend lends the management cluster until the end of the test, with at least these CRDs.
func lend(t *testing.T, crds ...string) *controlplane.Lent {
	t.Helper()
	lent, err := planes.Lend(t.Context(), controlplane.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(lent.GiveBack(context.Background())).To(Succeed()) })
	NewWithT(t).Expect(lent.InstallCRDs(t.Context(), crds...)).To(Succeed())
	return lent
}

// newStage installs Heirloom on a borrowed management cluster.
func newStage(t *testing.T, dir string, args []string) (s *stage.Stage, auditLog string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	crds, err := clusterapi.FleetCRDs(t.Context())
	Expect(err).NotTo(HaveOccurred())
	options, err := stage.ControlPlaneOptions(t.Context(), controlplane.Options{CRDPaths: crds})
	Expect(err).NotTo(HaveOccurred())
	lent := lend(t, options.CRDPaths...)
	program, err := controlplane.Built(t.Context(), "heirloom") // by make build
	Expect(err).NotTo(HaveOccurred())
	s, err = stage.New(t.Context(), stage.Options{Program: program, Args: args, Dir: dir, On: lent.ControlPlane})
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { Expect(s.Stop()).To(Succeed()) })
	return s, lent.AuditLog
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	w.Expect(w.Client.Create(w.ctx, object)).To(Succeed())
}

// list returns the objects of a kind in a Namespace, or in all Namespaces if it is empty.
func (w *world) list(c client.Client, gvk schema.GroupVersionKind, namespace string) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w.Expect(c.List(w.ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(raw)
}
