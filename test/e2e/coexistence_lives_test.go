// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"sync"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// step is something that an operator does to the MachineDeployment of the plain Cluster and, at the same moment, to the managed
// Cluster. After it, both worlds settle and are compared.
type step struct {
	name string
	do   []func(*world)
	// promised says what the world with Heirloom has then, beyond what is compared.
	promised func(*world)
}

// lives are what is done in two lives side by side.
type lives struct {
	steps []step
	// crowded are the steps that need so many kubelets that only one pair of worlds may be at them at a time: each needs two
	// inotify instances, of which Linux gives a user 128. Where there is much of the one Cluster, there is little of the other.
	crowded []step
	after   []step
}

// crowd is held by the pair of worlds that has the most kubelets.
var crowd sync.Mutex

// live goes through two lives, and expects that Cluster API has no more work with Heirloom than without.
func (p *pair) live(of lives) {
	before := p.writes()
	p.steps(of.steps)
	func() {
		crowd.Lock()
		defer crowd.Unlock()
		p.steps(of.crowded)
	}()
	p.steps(of.after)
	p.expectNoMoreWrites(before)
}

func (p *pair) steps(steps []step) {
	p.t.Helper()
	for _, step := range steps {
		p.step(step.name, step.do...)
		if step.promised != nil {
			step.promised(p.together)
		}
	}
}

// declared is what the template of the MachineDeployment declares at first. Typed taints come where the gate is on.
func declared() stage.Declared {
	return stage.Declared{
		Labels: map[string]string{
			"team": "ml", "goes": "soon", "node.cluster.x-k8s.io/pool": "gpu", "node-role.kubernetes.io/worker": "",
			"node.cluster.x-k8s.io/goes": "soon", "node.cluster.x-k8s.io/restored": "goes",
		},
		Annotations: map[string]string{
			"note": "humans", "node.cluster.x-k8s.io/note": "nodes", "restored": "too",
			taint.AlwaysAnnotation: alwaysAnnotated, taint.InitializeAnnotation: "annotated-once=yes:PreferNoSchedule",
		},
		OwnAnnotations: map[string]string{"runbook": "there", clusterv1.AutoscalerMaxSizeAnnotation: "9"},
	}
}

// typed is the same with typed taints.
func typed() stage.Declared {
	d := declared()
	d.Taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"),
		stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "booting=yes:PreferNoSchedule")...)
	return d
}

// livesGateOff are a life of a MachineDeployment and one of a managed Cluster with a kubeadm control plane and MachinePools.
func livesGateOff() lives {
	return lives{
		steps: []step{
			{"create", both(func(w *world) { w.deploy(declared()) }, func(w *world) { w.build(false) }), (*world).expectBuilt},
			{"change and remove; change class and Cluster", both(func(w *world) { w.changeTemplate(nil) }, func(w *world) { w.redeclare(false) }),
				(*world).expectRedeclared},
			{"change fields in place", both((*world).changeFields), nil},
			{"scale out; roll out other templates", both(func(w *world) { w.resize(3) }, (*world).rollOut), nil},
			{"roll out", both((*world).rollOutDeployment), nil},
			{"change after a rollout", both(func(w *world) { w.relabel("after") }), nil},
		},
		crowded: []step{
			{"scale in; scale out", both(func(w *world) { w.resize(1) }, func(w *world) { w.scale(3, 2) }), nil},
			{"delete a Machine; remediate a worker, replace a leader", both(func(w *world) { w.deleteMachine("workers-") }, (*world).replace), nil},
			{"scale in", both(func(w *world) { w.scale(1, 1) }), nil},
		},
		after: []step{
			{"a MachineSet and a Machine without owners, and adoption", both(func(w *world) { w.addLonely("", declared()) }), nil},
		},
	}
}

// livesGateOn are the same where the gate is on, of a MachineDeployment that there is already, and with typed taints.
func livesGateOn() lives {
	return lives{
		steps: []step{
			{"typed taints change, roll out, scale out; create", both((*world).changeTypedTaints, func(w *world) { w.build(true) }), (*world).expectBuilt},
			{"an annotated taint goes, delete a Machine; change class and Cluster",
				both((*world).dropAnnotatedTaint, func(w *world) { w.redeclare(true) }), func(w *world) {
					w.expectRedeclared()
					w.expectNoTaints("gpu", "annotated-more")
				}},
			{"change and remove; roll out other templates", both(func(w *world) {
				w.changeTemplate(stage.Taints(clusterv1.MachineTaintPropagationAlways, "npu=true:NoSchedule"))
			}, (*world).rollOut), nil},
			{"change fields in place", both((*world).changeFields), nil},
		},
		crowded: []step{
			{"scale in; scale out", both(func(w *world) { w.resize(1) }, func(w *world) { w.scale(3, 2) }), nil},
			{"roll out; remediate a worker, replace a leader", both((*world).rollOutDeployment, (*world).replace), nil},
			{"change after a rollout; scale in", both(func(w *world) { w.relabel("after") }, func(w *world) { w.scale(1, 1) }), nil},
		},
		after: []step{
			{"a MachineSet and a Machine without owners, and adoption", both(func(w *world) { w.addLonely("typed-", typed()) }), nil},
		},
	}
}

func both(do ...func(*world)) []func(*world) { return do }

func (w *world) expectBuilt() {
	w.expectPromised("annotated-cluster", 30, "leader", "workers", "pooled", "bare")
}

func (w *world) expectRedeclared() { w.expectPromised("annotated-changed", 31, "leader", "changed") }

// changeTemplate changes, adds and removes labels, annotations and taints of the MachineDeployment's template.
func (w *world) changeTemplate(taints []clusterv1.MachineTaint) {
	w.change(func(md *clusterv1.MachineDeployment) {
		template := &md.Spec.Template
		delete(template.Labels, "goes")
		template.Labels["team"], template.Labels["node.cluster.x-k8s.io/pool"] = "ai", "tpu"
		template.Labels["came.node.cluster.x-k8s.io/later"] = "yes"
		delete(template.Annotations, "note")
		md.Annotations["runbook"] = "here"
		template.Spec.Taints = taints
	})
}

func (w *world) changeFields() {
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60))
		md.Spec.Template.Spec.MinReadySeconds = ptr.To(int32(1))
	})
}

func (w *world) resize(replicas int32) {
	w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = &replicas })
}

func (w *world) rollOutDeployment() {
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("other-data")
	})
}

func (w *world) relabel(team string) {
	w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Template.Labels["team"] = team })
}

// expectNoTaints expects that no Node of the plain Cluster has one of these taints any more.
func (w *world) expectNoTaints(keys ...string) {
	w.t.Helper()
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		for _, key := range keys {
			g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring(key))
		}
	})
}
