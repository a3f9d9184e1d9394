// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// scalable is an object that cluster-autoscaler scales, and where its template has labels and annotations.
type scalable struct {
	client.Object
	template *clusterv1.ObjectMeta
}

// scalables are one of each kind, of no topology.
func scalables(cluster *clusterv1.Cluster) map[string]scalable {
	declares := stage.Declared{
		Labels:         map[string]string{"node.cluster.x-k8s.io/pool": "gpu", "extra.example.com/rack": "r1", "team": "ml"},
		Annotations:    map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"},
		OwnAnnotations: map[string]string{clusterv1.AutoscalerMinSizeAnnotation: "0", clusterv1.AutoscalerMaxSizeAnnotation: "3"},
	}
	md := stage.MachineDeployment(cluster, "md", declares)
	meta := metav1.ObjectMeta{Namespace: cluster.Namespace, Labels: md.Labels, Annotations: declares.OwnAnnotations}
	selector := map[string]string{"of": "set"}
	ms := &clusterv1.MachineSet{ObjectMeta: *meta.DeepCopy(), Spec: clusterv1.MachineSetSpec{
		ClusterName: cluster.Name, Replicas: md.Spec.Replicas, Selector: metav1.LabelSelector{MatchLabels: selector}, Template: *md.Spec.Template.DeepCopy(),
	}}
	ms.Name, ms.Spec.Template.Labels = "ms", merged(declares.Labels, selector)
	mp := &clusterv1.MachinePool{ObjectMeta: *meta.DeepCopy(), Spec: clusterv1.MachinePoolSpec{ClusterName: cluster.Name, Template: *md.Spec.Template.DeepCopy()}}
	mp.Name = "mp"
	return map[string]scalable{
		"MachineDeployment": {md, &md.Spec.Template.ObjectMeta}, "MachineSet": {ms, &ms.Spec.Template.ObjectMeta}, "MachinePool": {mp, &mp.Spec.Template.ObjectMeta},
	}
}

// applied is the object as somebody applies it who tells cluster-autoscaler these labels, or none.
func (o scalable) applied(kind, labels string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	if labels != "" {
		u.SetAnnotations(map[string]string{inherit.CapacityLabelsAnnotation: labels})
	}
	return u
}

// Rule 14: what cluster-autoscaler is told of Nodes to come changes in the write that changes it, gives way to the operator,
// and comes back when the operator's is gone. Nothing of it lasts when the object is scaled no more.
func TestAutoscalerIsToldOfNewNodes(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, admission)
	name := s.own("scaled")
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	s.create(cluster)
	const before, after, taints = "extra.example.com/rack=r1,node.cluster.x-k8s.io/pool=gpu", "extra.example.com/rack=r2,node.cluster.x-k8s.io/pool=gpu", "gpu=true:NoSchedule"
	for kind, o := range scalables(cluster) {
		t.Run(kind, func(t *testing.T) {
			s := s.in(t)
			told := func() string { return o.GetAnnotations()[inherit.CapacityLabelsAnnotation] }
			rack := func(value string) { s.update(o.Object, func() { o.template.Labels["extra.example.com/rack"] = value }) }
			apply := func(labels string) {
				s.Expect(s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(o.applied(kind, labels)), client.FieldOwner("operator"), client.ForceOwnership)).To(Succeed())
				s.get(o.Object)
			}
			s.create(o.Object)
			s.Expect(told()).To(Equal(before), "in the write that creates it")
			s.Expect(o.GetAnnotations()).To(HaveKeyWithValue(inherit.CapacityTaintsAnnotation, taints))
			s.Expect(ours(o)).To(And(ContainSubstring(inherit.CapacityLabelsAnnotation), ContainSubstring(inherit.CapacityTaintsAnnotation)))

			rack("r2")
			s.Expect(told()).To(Equal(after), "in the write that changes the template")
			s.update(o.Object, func() { delete(o.GetAnnotations(), inherit.CapacityLabelsAnnotation) })
			s.Expect(told()).To(Equal(after), "nobody takes it away")
			apply(after)
			rack("r1")
			s.Expect(told()).To(Equal(after), "what the operator says, too, is the operator's")
			s.Expect(ours(o)).NotTo(ContainSubstring(inherit.CapacityLabelsAnnotation))
			apply("mine=1")
			s.Expect(told()).To(Equal("mine=1"))
			apply("")
			s.Expect(told()).To(Equal(before), "ours is back in the write that takes the operator's away")
			s.update(o.Object, func() { o.GetAnnotations()[inherit.CapacityLabelsAnnotation] = "" })
			rack("r2")
			s.Expect(o.GetAnnotations()).To(HaveKeyWithValue(inherit.CapacityLabelsAnnotation, ""), "nothing is a value, too")

			s.update(o.Object, func() { delete(o.GetAnnotations(), inherit.CapacityLabelsAnnotation) })
			s.update(o.Object, func() { delete(o.GetAnnotations(), clusterv1.AutoscalerMaxSizeAnnotation) })
			s.Expect(o.GetAnnotations()).NotTo(Or(HaveKey(inherit.CapacityLabelsAnnotation), HaveKey(inherit.CapacityTaintsAnnotation)))
			s.Expect(ours(o)).To(BeEmpty())
		})
	}
}

// The loop brings the same where no webhook has been asked: to objects that are there already, when the operator's has been
// taken away, and when the program is started with other flags. It does not write what is the operator's.
func TestLoopTellsAutoscalerOfNewNodes(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true})
	s.ensureNamespace("scaled")
	cluster := stage.Cluster("scaled", "scaled")
	s.create(cluster)
	all := scalables(cluster)
	expect := func(labels string, why string) {
		s.t.Helper()
		for _, o := range all {
			s.eventually(o.Object, func(g Gomega) {
				g.Expect(o.GetAnnotations()[inherit.CapacityLabelsAnnotation]).To(Equal(labels), "%T: %s", o.Object, why)
			})
		}
	}
	apply := func(labels string) {
		s.t.Helper()
		for kind, o := range all {
			s.Expect(s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(o.applied(kind, labels)), client.FieldOwner("operator"))).To(Succeed())
		}
	}
	for _, o := range all {
		s.create(o.Object)
	}
	expect("node.cluster.x-k8s.io/pool=gpu", "the loop brings it")
	apply("node.cluster.x-k8s.io/pool=gpu") // not forced: what is ours as well is no conflict
	for _, o := range all {
		s.eventually(o.Object, func(g Gomega) {
			g.Expect(ours(o)).To(And(ContainSubstring(inherit.CapacityTaintsAnnotation), Not(ContainSubstring(inherit.CapacityLabelsAnnotation))), "%T", o.Object)
		})
		s.update(o.Object, func() { o.template.Labels["node.cluster.x-k8s.io/pool"] = "cpu" })
	}
	settled := versionsOf(s, all)
	s.Consistently(func() map[string]string { return versionsOf(s, all) }).WithTimeout(2*time.Second).Should(Equal(settled), "what is the operator's, nobody writes")
	expect("node.cluster.x-k8s.io/pool=gpu", "it is the operator's")
	apply("")
	expect("node.cluster.x-k8s.io/pool=cpu", "the operator's is gone")

	s.Expect(s.StopHeirloom()).To(Succeed())
	replica, err := s.StartReplica(s.ctx, "other-flags", `--additional-sync-machine-labels=^extra\.example\.com/`)
	s.Expect(err).NotTo(HaveOccurred())
	defer func() { s.Expect(replica.Stop()).To(Succeed()) }()
	expect("extra.example.com/rack=r1,node.cluster.x-k8s.io/pool=cpu", "another regex")
	for _, o := range all {
		s.update(o.Object, func() { o.GetAnnotations()[clusterv1.AutoscalerMaxSizeAnnotation] = "0" })
	}
	expect("", "scaled no more")
	for _, o := range all {
		s.eventually(o.Object, func(g Gomega) { g.Expect(ours(o)).To(BeEmpty()) })
	}
}

func versionsOf(s *scene, all map[string]scalable) map[string]string {
	versions := map[string]string{}
	for kind, o := range all {
		s.get(o.Object)
		versions[kind] = o.GetResourceVersion()
	}
	return versions
}
