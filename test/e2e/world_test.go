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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	patience = time.Minute
	// kubernetesVersion is the version that hollow kubelets report. Cluster API compares it with the declared version.
	kubernetesVersion = "v1.36.3"
)

// planes lends one management cluster and one workload cluster to one test at a time, so the tests are not parallel.
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

// world has a management cluster with Heirloom and Cluster API's own managers, and a workload cluster whose Nodes are hollow kubelets.
type world struct {
	*stage.Stage
	*WithT
	t   *testing.T
	ctx context.Context
	dir string
	// auditLog is the path of the API server's audit log.
	auditLog string
	managers *clusterapi.Managers
	workload *controlplane.ControlPlane
	// nodes is an administrator's client of the workload cluster.
	nodes client.Client
}

// newWorld makes a world, with a Namespace for each name. args are Heirloom's arguments.
func newWorld(t *testing.T, options clusterapi.Options, args []string, namespaces ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, WithT: NewWithT(t), ctx: ctx, dir: worldDir(t)}
	w.SetDefaultEventuallyTimeout(5 * patience)
	w.SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	w.startManagement(options, args)
	w.startWorkload()
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
		for _, name := range []string{"heirloom.log", "core.log", "kubeadm-bootstrap.log", "kubeadm-control-plane.log"} {
			if log, err := os.ReadFile(filepath.Join(dir, name)); err == nil && t.Failed() {
				t.Logf("%s:\n%s", name, log)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// lend lends a control plane for as long as the test lasts.
func lend(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	lent, err := planes.Lend(t.Context(), options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(lent.GiveBack(context.Background())).To(Succeed()) })
	return lent
}

// newStage installs Heirloom on a borrowed management cluster.
func newStage(t *testing.T, dir string, args []string) (s *stage.Stage, auditLog string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	options, err := stage.ControlPlaneOptions(t.Context(), controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	lent := lend(t, options)
	s, err = stage.New(t.Context(), stage.Options{Program: binary(t, "heirloom"), Args: args, Dir: dir, On: lent.ControlPlane})
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { Expect(s.Stop()).To(Succeed()) })
	return s, lent.AuditLog
}

func (w *world) startManagement(options clusterapi.Options, args []string) {
	w.t.Helper()
	w.Stage, w.auditLog = newStage(w.t, w.dir, args)
	options.Dir = w.dir
	var err error
	w.managers, err = clusterapi.Start(w.ctx, w.ControlPlane, options)
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { w.Expect(w.managers.Stop()).To(Succeed()) })
}

// startWorkload starts the workload cluster and the infrastructure provider.
func (w *world) startWorkload() {
	w.t.Helper()
	w.workload = lend(w.t, controlplane.ForWorkload(controlplane.Options{})).ControlPlane
	var err error
	w.nodes, err = client.New(w.workload.AdminConfig(), client.Options{Scheme: stage.Scheme()})
	w.Expect(err).NotTo(HaveOccurred())
	infra := &clusterapi.Infrastructure{Workload: w.workload, Dir: w.dir}
	w.Expect(infra.Start(w.ctx, w.AdminConfig())).To(Succeed())
	w.t.Cleanup(func() { w.Expect(errors.Join(w.managers.Stop(), infra.Stop())).To(Succeed()) })
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	w.Expect(w.Client.Create(w.ctx, object)).To(Succeed())
}

// addKubeconfig creates the Secret with a Cluster's kubeconfig of the workload cluster.
func (w *world) addKubeconfig(namespace, cluster string, kind corev1.SecretType) {
	w.t.Helper()
	kubeconfig, err := w.workload.Kubeconfig("cluster-api", "system:masters")
	w.Expect(err).NotTo(HaveOccurred())
	w.addSecret(namespace, cluster, "kubeconfig", kind, map[string][]byte{"value": kubeconfig})
}

func (w *world) addSecret(namespace, cluster, purpose string, kind corev1.SecretType, data map[string][]byte) {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: cluster + "-" + purpose, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Type: kind, Data: data,
	})
}

// list returns the objects of a kind in a Namespace, or in all Namespaces if it is empty.
func (w *world) list(c client.Client, gvk schema.GroupVersionKind, namespace string) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w.Expect(c.List(w.ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// binary returns the path of a program that `make build` has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := controlplane.Built(t.Context(), name)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return path
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(raw)
}
