// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// BenchmarkClient reports how long a client waits for a real API server (median), as a multiple of the same request without a webhook and
// a policy: with controller-runtime's no-op webhook, with a MutatingAdmissionPolicy that adds a label, and with Heirloom. The requests
// take turns.
func BenchmarkClient(b *testing.B) {
	f := newResidents(b, stage.Options{WithoutLoop: true})
	touched := f.oneOfEachWay(b)
	f.openWays(b, startNoOp(b))
	for _, tc := range []struct {
		name    string
		request func(b *testing.B, way string, number int) time.Duration
	}{
		{"Machine, bare create", func(b *testing.B, way string, _ int) time.Duration {
			machine := f.machine(way)
			return timed(b, func(ctx context.Context) error { return f.Client.Create(ctx, machine) })
		}},
		{"Machine, annotation that no rule reads", func(b *testing.B, way string, number int) time.Duration {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, number))
			return timed(b, func(ctx context.Context) error { return f.Client.Patch(ctx, touched[way], patch) })
		}},
		{"Machine, update that loses an inherited label", func(b *testing.B, way string, _ int) time.Duration {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node.cluster.x-k8s.io/label-0":null}}}`))
			took := timed(b, func(ctx context.Context) error { return f.Client.Patch(ctx, touched[way], patch) })
			if way != byHeirloom { // the webhook has put the label back
				restored := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node.cluster.x-k8s.io/label-0":"value"}}}`))
				timed(b, func(ctx context.Context) error { return f.Client.Patch(ctx, touched[way], restored) })
			}
			return took
		}},
		{"Machine, status", func(b *testing.B, way string, number int) time.Duration {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, number))
			return timed(b, func(ctx context.Context) error { return f.Client.Status().Patch(ctx, touched[way], patch) })
		}},
		{"Node, create by its kubelet", f.registration(b)},
	} {
		b.Run(tc.name, func(b *testing.B) { inTurns(b, tc.request) })
	}
}

// inTurns measures a request on every way. Each round begins with another way.
func inTurns(b *testing.B, request func(b *testing.B, way string, number int) time.Duration) {
	b.Helper()
	ways := []string{byNothing, byNoOp, byPolicy, byHeirloom}
	took := map[string][]time.Duration{}
	for number := 1; b.Loop(); number++ {
		for turn := range ways {
			way := ways[(number+turn)%len(ways)]
			took[way] = append(took[way], request(b, way, number))
		}
	}
	alone := median(took[byNothing])
	for _, way := range ways[1:] {
		b.ReportMetric(float64(median(took[way]))/float64(alone), way+"×nothing")
	}
	b.ReportMetric(alone.Seconds()*1000, "ms-by-nothing")
	b.ReportMetric(0, "ns/op") // a mean over all ways means nothing
}

// machine returns a new Machine that takes a way.
func (f *residents) machine(way string) *clusterv1.Machine {
	f.others++
	machine := stage.Machine(f.set, fmt.Sprintf("%s-%d", strings.ToLower(way), f.others))
	take(machine, way)
	return machine
}

// node returns the Node of a Machine that oneOfEachWay creates.
func (f *residents) node(way string) *corev1.Node {
	node := kubeletsNode("node-" + strings.ToLower(way))
	take(node, way)
	return node
}

// oneOfEachWay creates a Machine for each way. The Machines differ only in their way.
func (f *residents) oneOfEachWay(b *testing.B) map[string]*clusterv1.Machine {
	b.Helper()
	machines := map[string]*clusterv1.Machine{}
	for _, way := range []string{byHeirloom, byNothing, byNoOp, byPolicy} {
		machines[way] = stage.Machine(f.set, "node-"+strings.ToLower(way))
		if way != byHeirloom {
			first := machines[byHeirloom].DeepCopy()
			machines[way].Labels, machines[way].Annotations, machines[way].Spec.Taints = first.Labels, first.Annotations, first.Spec.Taints
		}
		take(machines[way], way)
		if err := f.Client.Create(b.Context(), machines[way]); err != nil {
			b.Fatal(err)
		}
	}
	return machines
}

// registration returns a request in which a kubelet creates the Node of a Machine. The Node is deleted afterwards.
func (f *residents) registration(b *testing.B) func(b *testing.B, way string, number int) time.Duration {
	b.Helper()
	kubelets := map[string]client.Client{}
	for _, way := range []string{byNothing, byNoOp, byPolicy, byHeirloom} {
		config, err := f.User("system:node:"+f.node(way).Name, "system:nodes")
		if err != nil {
			b.Fatal(err)
		}
		if kubelets[way], err = client.New(config, client.Options{Scheme: stage.Scheme()}); err != nil {
			b.Fatal(err)
		}
	}
	return func(b *testing.B, way string, _ int) time.Duration {
		b.Helper()
		node := f.node(way)
		took := timed(b, func(ctx context.Context) error { return kubelets[way].Create(ctx, node) })
		if inherits := node.Labels["node.cluster.x-k8s.io/label-0"] != ""; inherits != (way == byHeirloom) {
			b.Fatalf("by %s: unexpected labels: %v", way, node.Labels)
		}
		if err := f.Client.Delete(b.Context(), node); err != nil {
			b.Fatal(err)
		}
		return took
	}
}
