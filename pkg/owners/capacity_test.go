// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// scaled asks what an object of each kind inherits whose template declares a label for Nodes, after a change.
var scaled = map[string]func(context.Context, *Chain, func(metav1.Object)) (Decision, error){
	"MachineDeployment": func(ctx context.Context, c *Chain, change func(metav1.Object)) (Decision, error) {
		md := machineDeployment("x")
		declaring(&md.Spec.Template, "node.cluster.x-k8s.io/a")
		change(md)
		return MachineDeployments().Evaluate(ctx, c, md, inherit.Policy{})
	},
	"MachinePool": func(ctx context.Context, c *Chain, change func(metav1.Object)) (Decision, error) {
		mp := &clusterv1.MachinePool{ObjectMeta: named("x", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}}
		declaring(&mp.Spec.Template, "node.cluster.x-k8s.io/a")
		change(mp)
		return MachinePools().Evaluate(ctx, c, mp, inherit.Policy{})
	},
	"MachineSet": func(ctx context.Context, c *Chain, change func(metav1.Object)) (Decision, error) {
		ms := &clusterv1.MachineSet{ObjectMeta: named("x", ""), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}
		declaring(&ms.Spec.Template, "node.cluster.x-k8s.io/a")
		change(ms)
		return MachineSets().Evaluate(ctx, c, ms, inherit.Policy{})
	},
}

func annotated(key, value string) func(metav1.Object) {
	return func(object metav1.Object) { object.SetAnnotations(map[string]string{key: value}) }
}

func both(changes ...func(metav1.Object)) func(metav1.Object) {
	return func(object metav1.Object) {
		for _, change := range changes {
			change(object)
		}
	}
}

// TestCapacity is about who tells cluster-autoscaler something, with and without a topology (rule 14).
func TestCapacity(t *testing.T) {
	autoscaled := annotated(clusterv1.AutoscalerMaxSizeAnnotation, "3")
	paused := &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	for _, tc := range []struct {
		name   string
		change func(metav1.Object)
		cached []client.Object
		// inherits says that there is an answer; tells, that there is something to tell.
		inherits, tells bool
		source          string
		why             inherit.Reason
	}{
		{name: "one that is scaled tells", change: autoscaled, inherits: true, tells: true, source: "ns/x (spec.template.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited", change: both(autoscaled, label(clusterv1.ClusterTopologyOwnedLabel, "")), inherits: true, tells: true, source: "Cluster ns/c (spec.topology)"},
		{name: "one that is not scaled has nothing to do with it", change: func(metav1.Object) {}, why: inherit.NothingDeclares},
		{name: "one that is scaled no more gives up what it told", change: annotated(inherit.CapacityLabelsAnnotation, "x"), inherits: true, source: "ns/x (spec.template.metadata.labels)"},
		{name: "one that opted out is skipped", change: both(autoscaled, label(inherit.IgnoreLabel, "")), why: inherit.IsIgnored},
		{name: "one that is paused is skipped", change: both(autoscaled, func(o metav1.Object) { o.GetAnnotations()[clusterv1.PausedAnnotation] = "" }), why: inherit.IsPaused},
		{name: "one of a paused Cluster is skipped", change: autoscaled, cached: []client.Object{paused}, why: inherit.ClusterIsPaused},
		{name: "one that is being deleted is skipped", change: both(autoscaled, deleting), why: inherit.IsDeleted},
	} {
		for kind, asks := range scaled {
			t.Run(tc.name+" as a "+kind, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				found, err := asks(t.Context(), &Chain{Reader: holds(t, tc.cached...)}, tc.change)
				Expect(err).NotTo(HaveOccurred())
				Expect(found.Untouched()).To(Equal(!tc.inherits))
				Expect(found.Reason).To(Equal(tc.why))
				if found.Untouched() {
					return
				}
				Expect(found.Outcome).To(Equal(inherit.NoOwner), "what an owner propagated before stays")
				source := found.Sources(t.Context()).Of(inherit.Entry{What: "annotation", Name: inherit.CapacityLabelsAnnotation, Own: true})
				Expect(source.String()).To(ContainSubstring(tc.source))
				if !tc.tells {
					Expect(found.Desired.Top.Annotations).To(BeEmpty())
					return
				}
				Expect(found.Desired.Top.Annotations).To(Equal(map[string]string{inherit.CapacityLabelsAnnotation: "node.cluster.x-k8s.io/a=1"}))
				Expect(found.Desired.Top.Claims).To(Equal(map[string]inherit.Claim{inherit.CapacityLabelsAnnotation: inherit.Yielding}))
			})
		}
	}
}

// A topology's MachineDeployment and MachinePool tell what they will carry, once they have inherited.
func TestCapacityInATopology(t *testing.T) {
	cluster := managedCluster()
	metadata := clusterv1.ObjectMeta{
		Labels: map[string]string{"node.cluster.x-k8s.io/b": "2"}, Annotations: map[string]string{clusterv1.AutoscalerMaxSizeAnnotation: "3"},
	}
	taints := []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	workers := &cluster.Spec.Topology.Workers
	workers.MachineDeployments[0].Metadata, workers.MachineDeployments[0].Taints = metadata, taints
	workers.MachinePools[0].Metadata, workers.MachinePools[0].Taints = metadata, taints
	for _, kind := range []string{"MachineDeployment", "MachinePool"} {
		Expect := NewWithT(t).Expect
		found, err := scaled[kind](t.Context(), &Chain{Reader: holds(t, cluster, clusterClass())}, ofTopology)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Outcome).To(Equal(inherit.Inherits))
		Expect(found.Desired.Top.Annotations).To(Equal(map[string]string{
			inherit.CapacityLabelsAnnotation: "node.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/b=2", inherit.CapacityTaintsAnnotation: "gpu:NoSchedule",
			clusterv1.AutoscalerMaxSizeAnnotation: "3",
		}), kind)
		Expect(found.Desired.Top.Claims).To(Equal(map[string]inherit.Claim{
			inherit.CapacityLabelsAnnotation: inherit.Yielding, inherit.CapacityTaintsAnnotation: inherit.Yielding,
		}), kind)
	}
}

// A MachineSet of a MachineDeployment gets what that tells by rule 5, and nothing else; also while it is an orphan.
func TestCapacityOfAMachineDeploymentsSets(t *testing.T) {
	Expect := NewWithT(t).Expect
	md := machineDeployment("md")
	annotated(inherit.CapacityLabelsAnnotation, "of=md")(md)
	ms := machineSet("MachineDeployment/md")
	declaring(&ms.Spec.Template, "node.cluster.x-k8s.io/a")
	annotated(clusterv1.AutoscalerMaxSizeAnnotation, "3")(ms)
	chain := &Chain{Reader: holds(t, md)}
	found, err := MachineSets().Evaluate(t.Context(), chain, ms, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(found.Desired.Top.Annotations).To(HaveKeyWithValue(inherit.CapacityLabelsAnnotation, "of=md"))
	Expect(found.Desired.Top.Claims).To(BeEmpty())

	label(clusterv1.MachineDeploymentNameLabel, "md")(ms)
	ms.OwnerReferences = nil
	found, err = MachineSets().Evaluate(t.Context(), chain, ms, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(found.Outcome).To(Equal(inherit.OwnerNotFound))
}

// What cannot be told is reported.
func TestCapacitySaysWhatItLeavesOut(t *testing.T) {
	found, err := scaled["MachinePool"](t.Context(), &Chain{Reader: holds(t)}, func(object metav1.Object) {
		annotated(clusterv1.AutoscalerMaxSizeAnnotation, "3")(object)
		if mp, ok := object.(*clusterv1.MachinePool); ok {
			mp.Spec.Template.Annotations = map[string]string{"taints.heirloom.dev/always": "node.kubernetes.io/x:NoSchedule"}
		}
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(found.Problems).To(MatchError(ContainSubstring("node.kubernetes.io/x")))
}
