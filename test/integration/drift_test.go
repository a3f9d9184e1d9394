// SPDX-License-Identifier: Apache-2.0

package integration

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// inGit has what operators keep in Git: a Cluster without topology, and a ClusterClass with a Cluster of it.
//
//go:embed testdata/git.yaml
var inGit string

// The chart's objects and a fleet's declarations stay as Git has them, also after Heirloom has published its CA and Machines have
// inherited: the next server-side apply changes nothing, so a GitOps tool reports no drift and does not fight with Heirloom. Machines lose
// what Git no longer declares.
func TestNoDriftFromGit(t *testing.T) {
	t.Parallel()
	self := map[string]any{"mode": "self"}
	s := newScene(t, stage.Options{
		WithoutWebhooks: true, WithoutProgram: true, Host: "localhost", Args: ownCertificate("localhost"),
		Values: map[string]any{"certificates": self},
	})
	chart := render(t, map[string]any{
		"certificates": self, "webhooks": map[string]any{"url": s.WebhookURL}, "managementCluster": stage.Home + "/" + stage.Home,
	})
	s.Expect(s.applyGit(s.WithT, chart)).NotTo(BeEmpty())
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventuallyPublishesOneCA()
	s.asInGit(chart)

	s.ensureNamespace("git")
	var children []client.Object
	for _, team := range []string{"ml", "research", ""} {
		fleet := s.fleetInGit(team)
		s.Expect(s.applyGit(s.WithT, fleet)).NotTo(BeEmpty())
		if children == nil {
			children = s.childrenOfGit()
		}
		for _, child := range children {
			s.eventually(child, func(g Gomega) { g.Expect(teamOf(child)).To(Equal(team), "%T %s", child, child.GetName()) })
		}
		workers := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "git", Name: "workers"}}
		s.eventually(workers, func(g Gomega) { // Heirloom writes to an object in Git
			g.Expect(workers.Annotations).To(HaveKeyWithValue("capacity.cluster-autoscaler.kubernetes.io/labels", "node.cluster.x-k8s.io/pool=gpu"))
		})
		s.asInGit(append(fleet, chart...))

		s.update(workers, func() { workers.Spec.Template.Labels["node.cluster.x-k8s.io/pool"] = "other" })
		s.Expect(s.applyGit(s.WithT, fleet, client.DryRunAll)).To(ConsistOf(ContainSubstring("other")), "drift is found")
	}
}

// asInGit waits until another apply would change nothing, and then changes nothing.
func (s *scene) asInGit(objects []unstructured.Unstructured) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		g.Expect(s.applyGit(g, objects, client.DryRunAll)).To(BeEmpty())
		g.Expect(s.applyGit(g, objects)).To(BeEmpty())
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// applyGit applies the objects by server-side apply, and returns what this changes in each object, including its version.
func (s *scene) applyGit(g Gomega, objects []unstructured.Unstructured, options ...client.ApplyOption) (changes []string) {
	s.t.Helper()
	options = append(options, client.FieldOwner("git"), client.ForceOwnership)
	for _, object := range objects {
		before, after := &unstructured.Unstructured{}, object.DeepCopy()
		before.SetGroupVersionKind(object.GroupVersionKind())
		g.Expect(client.IgnoreNotFound(s.Client.Get(s.ctx, client.ObjectKeyFromObject(&object), before))).To(Succeed())
		g.Expect(s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(after), options...)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		if diff := cmp.Diff(before.Object, after.Object); diff != "" {
			changes = append(changes, diff)
		}
	}
	return changes
}

// fleetInGit returns the fleet, which declares this team for all its Machines; none if it is empty.
func (s *scene) fleetInGit(team string) []unstructured.Unstructured {
	s.t.Helper()
	declaration := "team: " + team + ", "
	if team == "" {
		declaration = ""
	}
	fleet, err := controlplane.DecodeObjects(strings.ReplaceAll(inGit, "team: ml, ", declaration))
	s.Expect(err).NotTo(HaveOccurred())
	for i := range fleet {
		fleet[i].SetNamespace("git")
	}
	return fleet
}

// childrenOfGit creates the objects that Cluster API creates for the fleet: those of its MachineDeployment, and the MachineDeployment of its
// topology.
func (s *scene) childrenOfGit() []client.Object {
	s.t.Helper()
	workers, topology := &clusterv1.MachineDeployment{}, &clusterv1.Cluster{}
	s.Expect(s.Client.Get(s.ctx, client.ObjectKey{Namespace: "git", Name: "workers"}, workers)).To(Succeed())
	s.Expect(s.Client.Get(s.ctx, client.ObjectKey{Namespace: "git", Name: "topology"}, topology)).To(Succeed())
	ofTopology := stage.MachineDeployment(topology, "topology-md-0", stage.Declared{})
	ofTopology.Labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	ofTopology.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "md-0"
	ms := stage.MachineSet(workers, "workers-1")
	s.create(ofTopology, ms)
	m := stage.Machine(ms, "workers-1-a")
	s.create(m)
	return []client.Object{ofTopology, m}
}

// teamOf returns the team of a Machine, or the team that a MachineDeployment declares for its Machines.
func teamOf(object client.Object) string {
	if md, ok := object.(*clusterv1.MachineDeployment); ok {
		return md.Spec.Template.Labels["team"]
	}
	return object.GetLabels()["team"]
}
