// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

func testKubectlRelease(t *testing.T, w *kubectlWorld) {
	t.Run("one object", func(t *testing.T) { releasesOneObject(t, w) })
	t.Run("one Cluster", func(t *testing.T) { releasesOneCluster(t, w) })
}

// ownCluster creates a Cluster for one test, with a MachineSet that has inherited entries.
func ownCluster(w *kubectlWorld, name string) (*clusterv1.Cluster, *clusterv1.MachineSet) {
	w.t.Helper()
	cluster := stage.Cluster(fleetName, name)
	md := stage.MachineDeployment(cluster, name+"-md", stage.Declared{Labels: map[string]string{"node.cluster.x-k8s.io/pool": name}})
	md.Spec.Template.Annotations = map[string]string{"note": "for humans"}
	w.createAs("kubectl", cluster, md)
	ms := stage.MachineSet(md, name+"-ms")
	ms.Spec.Template.Annotations = nil
	w.createAs("capi-machinedeployment", ms)
	w.eventually(ms, func(g Gomega) { g.Expect(ours(ms)).NotTo(BeEmpty()) })
	w.t.Cleanup(func() {
		for _, object := range []client.Object{ms, md, cluster} {
			w.Expect(w.Client.Delete(w.ctx, object)).To(Succeed())
		}
	})
	return cluster, ms
}

// When an object is released, the running program gives up its ownership in the object and then leaves the object alone.
func releasesOneObject(t *testing.T, w *kubectlWorld) {
	w = w.in(t)
	_, ms := ownCluster(w, "release-one")
	object := "machineset/" + ms.Name
	dry, errOut, code := w.kubectl(t, "release", object, "--dry-run")
	w.Expect(code).To(Equal(0), errOut)
	w.Expect(dry).To(And(
		HavePrefix("machineset.cluster.x-k8s.io/"+ms.Name+" labeled in namespace fleet (dry run)\n"),
		ContainSubstring("machineset.cluster.x-k8s.io/"+ms.Name+" released in namespace fleet (dry run)\n"), ContainSubstring("annotations.note\n")))
	w.get(ms)
	w.Expect(ours(ms)).NotTo(BeEmpty())
	w.Expect(ms.Labels).NotTo(HaveKey(inherit.IgnoreLabel))

	out, errOut, code := w.kubectl(t, "release", object, "--yes")
	w.Expect(code).To(Equal(0), errOut)
	w.Expect(out).To(Equal("machineset.cluster.x-k8s.io/" + ms.Name + " labeled in namespace fleet\nmachineset.cluster.x-k8s.io/" + ms.Name + " released in namespace fleet\n"))
	w.get(ms)
	w.Expect(ours(ms)).To(BeEmpty())
	w.Expect(ms.Spec.Template.Annotations).NotTo(HaveKey("note"))

	w.update(ms, func() { delete(ms.Labels, inherit.IgnoreLabel) })
	w.eventually(ms, func(g Gomega) { g.Expect(ours(ms)).NotTo(BeEmpty(), "it inherits again") })
}

func releasesOneCluster(t *testing.T, w *kubectlWorld) {
	w = w.in(t)
	cluster, ms := ownCluster(w, "release-all")
	before := ours(w.prodSet())
	w.Expect(before).NotTo(BeEmpty())
	out, errOut, code := w.kubectl(t, "release", "cluster/release-all", "--yes")
	w.Expect(code).To(Equal(0), errOut)
	w.Expect(out).To(HaveSuffix("cluster.cluster.x-k8s.io/release-all released in namespace fleet\n"))
	w.get(cluster)
	w.Expect(cluster.Labels).To(HaveKeyWithValue(inherit.IgnoreLabel, inherit.IgnoreAndRelease))
	w.get(ms)
	w.Expect(ours(ms)).To(BeEmpty())
	w.Expect(ms.Spec.Template.Annotations).NotTo(HaveKey("note"))
	w.Expect(ours(w.prodSet())).To(Equal(before), "other Clusters keep their entries")
}

// prodSet returns the MachineSet of Cluster prod.
func (w *kubectlWorld) prodSet() *clusterv1.MachineSet {
	w.t.Helper()
	ms := &clusterv1.MachineSet{}
	w.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: fleetName, Name: "prod-gpu-7x2kq"}, ms)).To(Succeed())
	return ms
}
