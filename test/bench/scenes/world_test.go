// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// namespace is the namespace of all Cluster API objects, and the name of the only Cluster.
const namespace = "fleet"

// scenes has the worlds of all scenes.
type scenes struct {
	alone, with *world
	// converging has the existing fleets, by size.
	converging map[int]*converging
}

// world is a management cluster with Cluster API's core manager and a workload cluster without kubelets.
type world struct {
	*stage.Stage
	name     string
	dir      string
	heirloom bool
	managers *clusterapi.Managers
	workload *controlplane.ControlPlane
	nodes    *nodes
	cluster  *clusterv1.Cluster
	// audits are the audit logs of the management cluster and of the workload cluster.
	audits []*auditLog
	// idles is the usage of the idle API server and etcd of the management cluster, in CPU time per time.
	idles float64
}

// newScenes starts the worlds, and stops them at the end of the benchmark.
func newScenes(b *testing.B) *scenes {
	b.Helper()
	s := &scenes{alone: &world{name: "alone"}, with: &world{name: "with", heirloom: true}, converging: map[int]*converging{}}
	b.Cleanup(func() {
		if b.Failed() {
			s.alone.logs(b)
			s.with.logs(b)
		}
		if err := errors.Join(s.alone.end(), s.with.end()); err != nil {
			b.Error(err)
		}
	})
	tell("starting four API servers, Cluster API's core manager twice, and Heirloom")
	var starts errgroup.Group
	starts.SetLimit(2)
	for _, start := range []func(context.Context) error{s.alone.start, s.with.start} {
		starts.Go(func() error { return start(b.Context()) })
	}
	if err := starts.Wait(); err != nil {
		b.Fatal(err)
	}
	return s
}

func (w *world) start(ctx context.Context) error {
	program, err := controlplane.Built(ctx, "heirloom")
	if err != nil {
		return err
	}
	if w.dir, err = controlplane.TempDir("scenes"); err != nil {
		return err
	}
	audited, err := w.audit("management")
	if err != nil {
		return err
	}
	w.Stage, err = stage.New(ctx, stage.Options{
		Program: program, Dir: w.dir, WithoutWebhooks: !w.heirloom, WithoutProgram: !w.heirloom, ControlPlane: audited,
		// The chart has the same log level. On a busy machine, the renewal of a lease may take longer than the lease lasts there.
		Args: []string{
			"--v=0", "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s",
		},
	})
	if err != nil {
		return err
	}
	if err := w.startWorkload(ctx); err != nil {
		return err
	}
	w.managers, err = clusterapi.Start(ctx, w.ControlPlane, clusterapi.Options{Dir: w.dir})
	if err != nil {
		return err
	}
	return w.addCluster(ctx)
}

func (w *world) startWorkload(ctx context.Context) error {
	audited, err := w.audit("workload")
	if err != nil {
		return err
	}
	if w.workload, err = controlplane.Start(ctx, controlplane.ForWorkload(audited)); err != nil {
		return err
	}
	w.nodes, err = watchNodes(ctx, w.workload.AdminConfig())
	return err
}

// addCluster creates the Cluster, with the status that providers would report. Its Machines have both templates.
func (w *world) addCluster(ctx context.Context) error {
	kubeconfig, err := w.workload.Kubeconfig(clusterAPI, "system:masters")
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: inCluster(namespace + "-kubeconfig"), Type: clusterv1.ClusterSecretType}
	secret.Data = map[string][]byte{"value": kubeconfig}
	w.cluster = stage.Cluster(namespace, namespace)
	w.cluster.Spec.InfrastructureRef = reference(infrastructureGroup, "FakeCluster")
	w.cluster.Spec.ControlPlaneRef = reference(controlPlaneGroup, "ModernControlPlane")
	w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	infrastructure := provided(infrastructureGroup, "FakeCluster", namespace, map[string]any{})
	controlPlane := provided(controlPlaneGroup, "ModernControlPlane", namespace, map[string]any{})
	if err := w.acceptBootstrap(ctx); err != nil {
		return err
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, secret, infrastructure, controlPlane, w.cluster,
		provided(infrastructureGroup, "FakeMachineTemplate", namespace, inTemplate(map[string]any{"size": "small"})),
		provided(bootstrapGroup, "KubeadmConfigTemplate", namespace, inTemplate(map[string]any{"format": "cloud-config"})),
	} {
		if err := w.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	err = w.patchStatus(ctx, infrastructure, map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true}})
	if err != nil {
		return err
	}
	return w.patchStatus(ctx, controlPlane, map[string]any{
		"externalManagedControlPlane": true, "initialization": map[string]any{"controlPlaneInitialized": true},
	})
}

// logs prints the last lines of the programs' logs.
func (w *world) logs(b *testing.B) {
	b.Helper()
	const last = 4_000
	for _, name := range []string{"core.log", "heirloom.log"} {
		if log, err := os.ReadFile(filepath.Join(w.dir, name)); err == nil {
			b.Logf("%s, the end of %s:\n%s", w.name, name, log[max(0, len(log)-last):])
		}
	}
}

// end stops everything.
func (w *world) end() error {
	var errs []error
	if w.managers != nil {
		errs = append(errs, w.managers.Stop())
	}
	if w.Stage != nil {
		errs = append(errs, w.Stop())
	}
	if w.workload != nil {
		errs = append(errs, w.workload.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
