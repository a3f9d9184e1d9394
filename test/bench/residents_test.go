// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// residents is a stage with a MachineSet and its Machines, each with a Node. The stage's own API server has the Nodes.
type residents struct {
	*stage.Stage
	set *clusterv1.MachineSet
	// machines is the number of Machines with a Node, others the number of further Machines.
	machines, others int
	auditLog         string
}

func newResidents(b *testing.B, options stage.Options) *residents {
	b.Helper()
	// The default log level.
	options.Args = append(options.Args, "-v=0", "--no-execute-rate=0")
	f := &residents{}
	f.Stage, f.auditLog = newAuditedStage(b, options)
	cluster := stage.Cluster(stage.Home, stage.Home)
	md := stage.MachineDeployment(cluster, "bench", declared())
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage.Home}}, cluster, md} {
		if err := f.Client.Create(b.Context(), object); err != nil {
			b.Fatal(err)
		}
	}
	f.set = stage.MachineSet(md, "bench")
	if err := f.Client.Create(b.Context(), f.set); err != nil {
		b.Fatal(err)
	}
	return f
}

// grow creates Machines and their Nodes up to this number.
func (f *residents) grow(b *testing.B, machines int) {
	b.Helper()
	creating, ctx := errgroup.WithContext(b.Context())
	creating.SetLimit(10)
	for ; f.machines < machines; f.machines++ {
		name := fmt.Sprintf("bench-%d", f.machines)
		creating.Go(func() error {
			if err := f.Client.Create(ctx, stage.Machine(f.set, name)); err != nil {
				return err
			}
			return f.Client.Create(ctx, stage.Node(name))
		})
	}
	if err := creating.Wait(); err != nil {
		b.Fatal(err)
	}
}

// declared returns 15 keys and 2 taints.
func declared() stage.Declared {
	d := stage.Declared{
		Labels: map[string]string{}, Annotations: map[string]string{},
		Taints: stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule,dedicated=ml:NoExecute"),
	}
	for i := range 10 {
		d.Labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = "value"
	}
	for i := range 5 {
		d.Annotations[fmt.Sprintf("node.cluster.x-k8s.io/annotation-%d", i)] = "value"
	}
	return d
}

// timed returns how long a call takes.
func timed(b *testing.B, call func(context.Context) error) time.Duration {
	b.Helper()
	start := time.Now()
	err := call(b.Context())
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// median returns the median of the values.
func median(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
