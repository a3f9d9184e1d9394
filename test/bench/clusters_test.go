// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

const (
	// firstLabel is in the ClusterClass from the beginning, secondLabel is added to it.
	firstLabel, secondLabel = clusterv1.ManagedNodeLabelDomain + "/first", clusterv1.ManagedNodeLabelDomain + "/second"
	// idleFor is the time for which the CPU time without changes is measured, with one garbage collection, settlesIn the time before.
	idleFor, settlesIn = 2 * time.Minute, 40 * time.Second
	// clustersPatience limits each wait. It is no target.
	clustersPatience = 15 * time.Minute
)

// clustersArgs are the flags of leader election with their defaults: the stage has longer times. A roll-out has no limits.
var clustersArgs = []string{"--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s", "--no-execute-clusters=100%", "--no-execute-soak=0s"}

func clusterName(cluster int) string    { return fmt.Sprintf("c%d", cluster) }
func nodeName(cluster, node int) string { return fmt.Sprintf("c%d-%d", cluster, node) }

// clusters is a fleet of BENCH_CLUSTERS workload clusters with BENCH_NODES Nodes each. Some are unreachable or slow, see stateOf.
type clusters struct {
	*fleet
	workloads []*workload
	nodes     int
	census    census
	// reachable is the number of Nodes in healthy workload clusters.
	reachable int
}

// BenchmarkClusters reports the costs of workload clusters: memory, connections, the CPU time without changes, and requests to the management
// cluster during the start; the time until all Nodes of healthy workload clusters are right, after the start, after the loss of the leader
// after a change of the ClusterClass, and after a taint there that evicts Pods, without limits of the roll-out; and the latency of admission
// during the change.
func BenchmarkClusters(b *testing.B) {
	if os.Getenv("BENCH_CLUSTERS") == "" {
		b.Skip("BENCH_CLUSTERS is not set: make bench SCENARIO=clusters")
	}
	count, nodes := number(b, "BENCH_CLUSTERS", 0), number(b, "BENCH_NODES", 6)
	b.Run(fmt.Sprintf("%d×%d", count, nodes), func(b *testing.B) {
		b.ReportMetric(0, "ns/op")
		c := &clusters{fleet: newFleet(b, stage.Options{Args: clustersArgs, Env: []string{"GOMEMLIMIT=" + cmp.Or(os.Getenv("BENCH_MEMORY"), "off")}}), nodes: nodes}
		empty := measured(b, c.MetricsURL)
		c.create(b, count)
		c.start(b)
		c.idle(b, empty)
		second := c.failOver(b)
		c.declare(b, second)
		c.rollOut(b, second)
	})
}

// create creates the workload clusters, and all objects of the management cluster. Heirloom runs, so that its webhooks write what Machines
// inherit, and stops at the end.
func (c *clusters) create(b *testing.B, count int) {
	b.Helper()
	c.census.count(labeled(firstLabel))
	c.workloads = make([]*workload, count)
	class := &clusterv1.ClusterClass{}
	text, err := os.ReadFile("testdata/class.yaml")
	if err = errors.Join(err, yaml.UnmarshalStrict(text, class)); err != nil {
		b.Fatal(err)
	}
	if err := c.Client.Create(b.Context(), class); err != nil {
		b.Fatal(err)
	}
	c.each(b, func(ctx context.Context, i int) (err error) {
		if c.workloads[i], err = newWorkload(ctx, i, c.nodes, &c.census); err != nil {
			return err
		}
		return c.createCluster(ctx, i)
	})
	b.Cleanup(func() {
		if err := c.StopHeirloom(); err != nil {
			b.Error(err)
		}
		closeAll(c.workloads)
	})
	if err := c.StopHeirloom(); err != nil {
		b.Fatal(err)
	}
	c.each(b, c.provision)
	for _, w := range c.workloads {
		if w.state == healthy {
			c.reachable += c.nodes
		}
	}
	flap(b, c.workloads)
}

// each calls a function for each Cluster, several at a time.
func (c *clusters) each(b *testing.B, do func(ctx context.Context, cluster int) error) {
	b.Helper()
	all, ctx := errgroup.WithContext(b.Context())
	all.SetLimit(10)
	for i := range c.workloads {
		all.Go(func() error { return do(ctx, i) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// createCluster creates a Cluster with a topology, and all that its controllers make of it.
func (c *clusters) createCluster(ctx context.Context, i int) error {
	name := clusterName(i)
	kubeconfig, err := c.workloads[i].kubeconfig()
	if err != nil {
		return err
	}
	cluster := stage.Cluster(stage.Home, name)
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: "v1.36.0"}
	cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Class: "worker", Name: "workers"}}
	md := stage.MachineDeployment(cluster, name, stage.Declared{})
	md.Labels[clusterv1.ClusterTopologyOwnedLabel], md.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "", "workers"
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: stage.Home, Name: name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: name},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	}
	for _, object := range []client.Object{cluster, secret, md} {
		if err := c.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	set := stage.MachineSet(md, name)
	if err := c.Client.Create(ctx, set); err != nil {
		return err
	}
	for n := range c.nodes {
		machine := stage.Machine(set, nodeName(i, n))
		if err := c.Client.Create(ctx, machine); err != nil {
			return err
		}
		before := machine.DeepCopy()
		machine.Status.NodeRef.Name = machine.Name
		if err := c.Client.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// provision reports the infrastructure of a Cluster as provisioned, so that Heirloom connects to it.
func (c *clusters) provision(ctx context.Context, i int) error {
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"status":{"initialization":{"infrastructureProvisioned":true}}}`))
	return c.Client.Status().Patch(ctx, stage.Cluster(stage.Home, clusterName(i)), patch)
}

// wait waits until all Nodes of healthy workload clusters have the label, and reports the time since begun.
func (c *clusters) wait(b *testing.B, begun time.Time, metric string) {
	b.Helper()
	until(b, fmt.Sprintf("%s of %d Nodes", metric, c.reachable), func() bool { return int(c.census.have.Load()) == c.reachable })
	b.ReportMetric(time.Since(begun).Seconds(), metric)
}

// until waits for a condition.
func until(b *testing.B, what string, reached func() bool) {
	b.Helper()
	err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, clustersPatience, true, func(context.Context) (bool, error) {
		return reached(), nil
	})
	if err != nil {
		b.Fatalf("waiting for %s: %v", what, err)
	}
}

// start starts Heirloom. All Machines are right, and no Node.
func (c *clusters) start(b *testing.B) {
	b.Helper()
	begun := time.Now()
	if err := c.StartHeirloom(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
	c.wait(b, begun, "s-start")
	management, err := url.Parse(c.AdminConfig().Host)
	if err != nil {
		b.Fatal(err)
	}
	now := measured(b, c.MetricsURL)
	b.ReportMetric(now["rest_client_requests_total "+management.Host], "requests-start")
	b.ReportMetric(now["process_cpu_seconds_total"], "s-CPU-start")
}

// idle waits until no Node is left in a queue, and measures for a while. Probes and attempts to reconnect go on.
func (c *clusters) idle(b *testing.B, empty map[string]float64) {
	b.Helper()
	until(b, "empty queues", func() bool {
		now := measured(b, c.MetricsURL)
		return now["workqueue_depth node"]+now["workqueue_depth machine"] == 0
	})
	waited(b.Context(), settlesIn) // objects that come again after a time are in no queue
	before := measured(b, c.MetricsURL)
	waited(b.Context(), idleFor)
	now := measured(b, c.MetricsURL)
	more := func(metric string) float64 { return now[metric] - empty[metric] }
	count := float64(len(c.workloads))
	b.ReportMetric((now["process_cpu_seconds_total"]-before["process_cpu_seconds_total"])/idleFor.Seconds()*100, "%-CPU-idle")
	b.ReportMetric(now["process_resident_memory_bytes"]/(1<<20), "MiB")
	b.ReportMetric(now["go_memstats_heap_inuse_bytes"]/(1<<20), "MiB-heap")
	b.ReportMetric(more("process_resident_memory_bytes")/(1<<20)/count, "MiB/Cluster")
	b.ReportMetric(more("process_resident_memory_bytes")/(1<<10)/count/float64(c.nodes), "KiB/Node")
	b.ReportMetric(more("process_open_fds")/count, "connections/Cluster")
}

// failOver kills the leader while a second replica waits, and returns the replica. All Nodes lose the label before the replica leads.
func (c *clusters) failOver(b *testing.B) *stage.Replica {
	b.Helper()
	second, err := c.StartReplica(context.WithoutCancel(b.Context()), "second", slices.Concat(benchArgs, clustersArgs)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := second.Stop(); err != nil {
			b.Error(err)
		}
	})
	begun := time.Now()
	if err := syscall.Kill(c.Heirloom.PID(), syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	_ = c.StopHeirloom() // it has ended by itself
	if err := strip(b.Context(), c.workloads, c.nodes, firstLabel); err != nil {
		b.Fatal(err)
	}
	until(b, "a second leader", func() bool { return measured(b, second.MetricsURL)["leader_election_master_status"] == 1 })
	b.ReportMetric(time.Since(begun).Seconds(), "s-leader-change-election")
	c.wait(b, begun, "s-leader-change")
	return second
}

// declare adds a label to the ClusterClass. Meanwhile, it asks a webhook twenty times a second, as an API server does.
func (c *clusters) declare(b *testing.B, leader *stage.Replica) {
	b.Helper()
	asking := newCaller(leader.WebhookURL+webhooks.PathOf(owners.Machines), review(b, "machine", c.sent(b, "machine"), nil))
	asking.expect(b, true)
	ctx, cancel := context.WithCancel(b.Context())
	var took []time.Duration
	asked := make(chan error)
	go func() {
		asked <- wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
			begun := time.Now()
			_, err := asking.ask(b.Context())
			took = append(took, time.Since(begun))
			return false, err
		})
	}()
	c.census.count(labeled(secondLabel))
	begun := time.Now()
	c.change(b, "labels/"+strings.ReplaceAll(secondLabel, "/", "~1"), `"value"`)
	c.wait(b, begun, "s-label-in-class")
	cancel()
	if err := <-asked; !wait.Interrupted(err) {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "ms-admission-p99")
}

// rollOut adds a taint that evicts Pods to the ClusterClass.
func (c *clusters) rollOut(b *testing.B, leader *stage.Replica) {
	b.Helper()
	c.census.count(tainted("drain"))
	before, begun := measured(b, leader.MetricsURL), time.Now()
	c.change(b, "annotations", `{"`+taint.AlwaysAnnotation+`": "drain:NoExecute"}`)
	c.wait(b, begun, "s-taint-in-class")
	requests := measured(b, leader.MetricsURL)["rest_client_requests_total"] - before["rest_client_requests_total"]
	b.ReportMetric(requests/time.Since(begun).Seconds(), "requests/s-taint")
}

// change changes the metadata of the class's MachineDeployments.
func (c *clusters) change(b *testing.B, path, value string) {
	b.Helper()
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Home, Name: "class"}}
	patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/spec/workers/machineDeployments/0/metadata/%s","value":%s}]`, path, value))
	if err := c.Client.Patch(b.Context(), class, patch); err != nil {
		b.Fatal(err)
	}
}
