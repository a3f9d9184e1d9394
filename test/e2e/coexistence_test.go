// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// step is something that an operator does. After it, both worlds settle and are compared.
type step struct {
	name string
	do   func(*world)
}

// steps are one life of a MachineDeployment. With typed, taints are declared in fields, too, which Cluster API accepts only
// with its feature gate.
func steps(typed bool) []step {
	declared := stage.Declared{
		Labels:         map[string]string{"team": "ml", "node.cluster.x-k8s.io/pool": "gpu", "node-role.kubernetes.io/worker": "", "goes": "soon"},
		Annotations:    map[string]string{"note": "humans", "node.cluster.x-k8s.io/note": "nodes", taint.AlwaysAnnotation: "annotated-always=yes:NoSchedule"},
		OwnAnnotations: map[string]string{"runbook": "there", clusterv1.AutoscalerMaxSizeAnnotation: "9"},
	}
	if typed {
		declared.Taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "booting=yes:PreferNoSchedule")...)
	}
	return []step{
		{"create", func(w *world) { w.deploy(2, declared) }},
		{"change and remove", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) {
				template := &md.Spec.Template
				delete(template.Labels, "goes")
				template.Labels["team"], template.Labels["node.cluster.x-k8s.io/pool"] = "ai", "tpu"
				template.Labels["came.node.cluster.x-k8s.io/later"] = "yes"
				delete(template.Annotations, "note")
				md.Annotations["runbook"] = "here"
				if typed {
					template.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "tpu=true:NoSchedule")
				}
			})
		}},
		{"change fields in place", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) {
				md.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60))
				md.Spec.Template.Spec.MinReadySeconds = ptr.To(int32(1))
			})
		}},
		{"scale out", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To(int32(3)) })
		}},
		{"roll out", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) {
				md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("other-data")
			})
		}},
		{"change after a rollout", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Template.Labels["team"] = "after" })
		}},
		{"a MachineSet and a Machine without owners, and adoption", func(w *world) { w.addLonely(declared) }},
		{"delete a Machine", func(w *world) {
			machines := w.list(w.Client, machineKind)
			machine := machines[slices.IndexFunc(machines, func(m unstructured.Unstructured) bool { return strings.HasPrefix(m.GetName(), "workers-") })]
			w.Expect(w.Client.Delete(w.ctx, &machine)).To(Succeed())
			w.Eventually(func() error { return w.Client.Get(w.ctx, client.ObjectKeyFromObject(&machine), &machine) }).
				WithTimeout(patience).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		}},
		{"scale in", func(w *world) {
			w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To(int32(1)) })
		}},
	}
}

// Beside Cluster API's own controllers, every object of the chain ends as without Heirloom, apart from what only Heirloom
// promises; nothing moves that would not move anyway. It makes no difference whether Heirloom comes before or after, and
// none is left when it has gone.
func TestCoexistence(t *testing.T) {
	t.Parallel() // with TestCoexistenceWithTopology
	for _, gate := range []bool{true, false} {
		t.Run(fmt.Sprintf("MachineTaintPropagation=%t", gate), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			options := clusterapi.Options{TaintPropagation: gate}
			alone, together := newWorld(t, false, options), newWorld(t, true, options)
			for _, step := range steps(gate) {
				step.do(alone)
				step.do(together)
				expectEqual(alone, together, step.name)
			}
			expectQuiet(alone, together)

			alone.Expect(alone.StartHeirloom(alone.ctx)).To(Succeed())
			expectEqual(alone, together, "Heirloom comes later")
			together.Expect(together.StopHeirloom()).To(Succeed())
			last := step{"Heirloom has gone", func(w *world) {
				w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Template.Labels["team"] = "last" })
			}}
			last.do(alone)
			last.do(together)
			expectEqual(alone, together, last.name)
		})
	}
}

// expectEqual lets both worlds settle and compares them.
func expectEqual(alone, together *world, after string) {
	together.t.Helper()
	expectEqualParts(alone, together, after, (*world).snapshot)
}

// expectEqualParts compares what a function returns of both worlds when they have settled. On a busy machine, a controller
// may rest for longer than settle waits, so that one world is behind; the worlds have to become equal without any further step.
func expectEqualParts(alone, together *world, after string, parts func(*world) []string) {
	together.t.Helper()
	settle(alone, together)
	settled, diff := time.Now(), ""
	err := wait.PollUntilContextTimeout(together.ctx, time.Second, patience, true, func(context.Context) (bool, error) {
		diff = cmp.Diff(parts(alone), parts(together))
		return diff == "", nil
	})
	if err != nil {
		together.t.Fatalf("after %q, Heirloom makes a difference (-without, +with):\n%s", after, diff)
	}
	together.t.Logf("%s: as without Heirloom, %s after both settled", after, time.Since(settled).Round(time.Second))
}

// expectQuiet expects that the world with Heirloom is still, and that Cluster API did not have to write more there than alone.
// How often it repeats itself in all differs a little from run to run.
func expectQuiet(alone, together *world) {
	together.t.Helper()
	together.expectStill()
	without, with := alone.writes(), together.writes()
	together.t.Logf("Cluster API wrote, status aside, %d times without Heirloom and %d times beside it: %v", without.total(), with.total(), with)
	for _, what := range []string{"delete machines", "delete machinesets"} {
		together.Expect(with[what]).To(Equal(without[what]), what)
	}
	expectSameCreations(alone, together)
	together.Expect(float64(with.total())).To(BeNumerically("<=", 1.2*float64(without.total())))
}
