// SPDX-License-Identifier: Apache-2.0

// Package bench measures the costs of Heirloom: the CPU time of a review, as a ratio to a webhook that does nothing, memory and start by
// the number of Machines, and the costs of many workload clusters.
package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/bench/samples"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// TestMain keeps the log lines of libraries out of the lines of benchmarks.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if settings, is := os.LookupEnv(noOpEnvironment); is {
		if err := serveNoOp(ctrl.SetupSignalHandler(), settings); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fleet is a stage with a MachineSet and its Machines, each with a Node. The stage's own API server has the Nodes.
type fleet struct {
	*stage.Stage
	set      *clusterv1.MachineSet
	machines int
}

// benchArgs are arguments of the program: the default log level, and no waits.
var benchArgs = []string{"-v=0", "--no-execute-rate=0"}

func newFleet(b *testing.B, options stage.Options) *fleet {
	b.Helper()
	var err error
	if options.Program, err = controlplane.Built(b.Context(), "heirloom"); err != nil {
		b.Fatal(err)
	}
	options.Args, options.Dir = slices.Concat(benchArgs, options.Args), b.TempDir()
	f := &fleet{}
	if f.Stage, err = stage.New(b.Context(), options); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Stop(); err != nil {
			b.Error(err)
		}
	})
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

// grow creates Machines and their Nodes up to this number.
func (f *fleet) grow(b *testing.B, machines int) {
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

// measured returns the metrics that a program serves at a URL.
func measured(b *testing.B, url string) map[string]float64 {
	b.Helper()
	now, err := samples.Of(context.WithoutCancel(b.Context()), url)
	if err != nil {
		b.Fatal(err)
	}
	return now
}

// number returns the number in an environment variable, or a small number, with which a benchmark runs in a moment.
func number(b *testing.B, variable string, small int) int {
	b.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return small
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		b.Fatalf("%s: %v", variable, err)
	}
	return value
}
