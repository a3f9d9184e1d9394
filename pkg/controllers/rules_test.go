// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// As soon as it is known that Cluster API takes typed taints, those that a Machine declares by annotation become typed, without
// anybody's write; and when its gate goes off, ours go, also from a Machine that is left alone.
func TestTaintsFollowTheGateOfClusterAPI(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Annotations = map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}
	l := newLoop(t, theCluster(), machineSet(), m)
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()

	l.policy.ClusterAPITaints = inherit.PropagationEnabled
	l.Expect(l.see(m)).To(Succeed())
	l.wrote(`heirloom applies Machine ns/m@999 {"spec":{"taints":[{"effect":"NoSchedule","key":"gpu","propagation":"Always","value":"true"}]}}`)

	l.change(m, func() { m.Annotations[clusterv1.PausedAnnotation] = "" })
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()
	l.policy.ClusterAPITaints = inherit.PropagationDisabled
	l.Expect(l.see(m)).To(Succeed())
	l.wrote("heirloom patches Machine ns/m@1001 remove /spec/taints")
	l.stored(m)
	l.Expect(m.Spec.Taints).To(BeEmpty())
	l.Expect(m.Annotations).To(HaveKey(taint.AlwaysAnnotation))
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()
}

// What cluster-autoscaler scales tells it of the Nodes to come (rule 14). Where somebody else says that, too, it is not ours.
func TestWhatIsScaledTellsOfNewNodes(t *testing.T) {
	md, ms, mp := machineDeployment(pool+"=gpu"), machineSet(pool+"=gpu"), machinePool(pool+"=gpu")
	ms.OwnerReferences = nil
	for _, object := range []client.Object{md, ms, mp} {
		object.SetAnnotations(map[string]string{clusterv1.AutoscalerMaxSizeAnnotation: "3"})
	}
	for _, object := range []client.Object{md, ms, mp} {
		t.Run(object.GetName(), func(t *testing.T) {
			l := newLoop(t, theCluster(), object)
			told := func() string {
				l.Expect(l.see(object)).To(Succeed())
				return l.stored(object).GetAnnotations()[inherit.CapacityLabelsAnnotation]
			}
			l.Expect(told()).To(Equal(pool + "=gpu"))
			l.policy.AdditionalLabels = []*regexp.Regexp{regexp.MustCompile("^rack$")}
			l.change(object, func() { declare(object, pool+"=gpu", "rack=r1") })
			l.Expect(told()).To(Equal(pool+"=gpu,rack=r1"), "another regex brings another label")

			l.change(object, func() { object.GetAnnotations()[inherit.CapacityLabelsAnnotation] = "mine=yes" })
			l.writes.take()
			l.Expect(told()).To(Equal("mine=yes"), "it is somebody else's")
			l.Expect(told()).To(Equal("mine=yes"))

			l.change(object, func() { delete(object.GetAnnotations(), inherit.CapacityLabelsAnnotation) })
			l.Expect(told()).To(Equal(pool + "=gpu,rack=r1"))
			l.change(object, func() { object.GetAnnotations()[clusterv1.AutoscalerMaxSizeAnnotation] = "0" })
			l.Expect(told()).To(BeEmpty(), "it is scaled no more")
		})
	}
}
