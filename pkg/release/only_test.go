// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// just names an object of namespace ns.
func just(apiVersion, kind, name string) Options {
	return Options{Only: &Only{schema.FromAPIVersionAndKind(apiVersion, kind), types.NamespacedName{Namespace: "ns", Name: name}}}
}

// of is an object of this Cluster which has inherited something.
func of(t *testing.T, cluster, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	u := teamed(t, apiVersion, kind, name)
	labels := u.GetLabels()
	labels["cluster.x-k8s.io/cluster-name"] = cluster
	u.SetLabels(labels)
	return u
}

func TestOneObject(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, provisionedCluster(t, "red"), of(t, "red", core, "Machine", "m"), of(t, "red", core, "Machine", "other"),
		of(t, "red", infra, "InfraMachine", "m"), of(t, "red", controlPlane, "ControlPlane", "cp"))
	dry := releasing(management, just(core, "Machine", "m"))
	dry.DryRun = true
	Expect(dry.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
	Expect(dry.out.String()).To(Equal("machine.cluster.x-k8s.io/m released in namespace ns (dry run)\n  .metadata.labels.team\n"))

	for _, o := range []Options{just(core, "Machine", "m"), just(infra, "InfraMachine", "m"), just(controlPlane, "ControlPlane", "cp")} {
		Expect(releasing(management, o).Run(t.Context())).To(Succeed())
	}
	Expect(management.written()).To(Equal([]string{"patch Machine m", "patch InfraMachine m", "patch ControlPlane cp"}))
	text, managers := management.stored(t, core, "Machine", "m")
	Expect(text).NotTo(ContainSubstring("team"))
	Expect(managers).To(Equal([]string{"user"}))

	again := releasing(management, just(core, "Machine", "m"))
	Expect(again.Run(t.Context())).To(Succeed())
	Expect(again.progress.String()).To(Equal("machine.cluster.x-k8s.io/m in namespace ns: nothing to release\n"))
}

func TestOneObjectThatCannotBe(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options Options
		fail    string
		problem string
	}{
		{name: "not there", options: just(core, "Machine", "none"), problem: "getting machine.cluster.x-k8s.io/none in namespace ns: "},
		{name: "a template", options: just(infra, "InfraMachineTemplate", "x"), problem: "objects of kind InfraMachineTemplate inherit nothing; "},
		{name: "another kind", options: just(core, "MachineHealthCheck", "x"), problem: "objects of kind MachineHealthCheck inherit nothing; "},
		{name: "a Node", options: just("v1", "Node", "x"), problem: "a Node is released with its Machine, or with its Cluster"},
		{name: "forbidden", options: just(core, "Machine", "m"), fail: "patch Machine", problem: "machine.cluster.x-k8s.io/m in namespace ns: any "},
		{name: "unknown whether Heirloom runs", options: just(core, "Machine", "m"), fail: "get Lease", problem: "looking for the Lease"},
		{name: "unknown whether its Cluster is opted out", options: just(core, "Machine", "m"), fail: "get Cluster", problem: "getting Cluster ns/red: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			management := holds(served, provisionedCluster(t, "red"), of(t, "red", core, "Machine", "m"))
			management.fail[tc.fail] = forbidden
			NewWithT(t).Expect(releasing(management, tc.options).Run(t.Context())).To(MatchError(ContainSubstring(tc.problem)))
			NewWithT(t).Expect(management.written()).To(BeEmpty())
		})
	}
}

// While Heirloom runs, it would put back what is released, unless the object or its Cluster is opted out.
func TestOneObjectWhileHeirloomRuns(t *testing.T) {
	const say = "what is released now would be inherited again, because Heirloom runs; opt machine.cluster.x-k8s.io/m in namespace ns out first:\n" +
		"  kubectl label machine.cluster.x-k8s.io m --namespace ns heirloom.dev/ignore="
	for _, tc := range []struct {
		name            string
		object, cluster bool
		running         client.Object
		options         Options
		problem         string
	}{
		{name: "a leader", running: heldBy("pod", time.Second), problem: say},
		{name: "webhooks", running: configurations()[0], problem: say},
		{name: "which are not deleted", running: configurations()[0], options: Options{DeleteWebhookConfigurations: true, TakeLease: true}, problem: say},
		{name: "opted out", running: heldBy("pod", time.Second), object: true},
		{name: "its Cluster is opted out", running: heldBy("pod", time.Second), cluster: true},
		{name: "it does not run", running: heldBy("pod", time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			machine, cluster := of(t, "red", core, "Machine", "m"), provisionedCluster(t, "red")
			for object, ignored := range map[*unstructured.Unstructured]bool{machine: tc.object, cluster: tc.cluster} {
				if ignored {
					labels := map[string]string{inherit.IgnoreLabel: ""}
					for key, value := range object.GetLabels() {
						labels[key] = value
					}
					object.SetLabels(labels)
				}
			}
			management := holds(served, machine, cluster, tc.running)
			tc.options.Only = just(core, "Machine", "m").Only
			err := releasing(management, tc.options).Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(management.written()).To(Equal([]string{"patch Machine m"}))
				return
			}
			Expect(err).To(MatchError(tc.problem))
			Expect(management.written()).To(BeEmpty())
		})
	}
}

// A Machine's Node goes with it, as with the label that opts a Machine out.
func TestAMachineWithItsNode(t *testing.T) {
	Expect := NewWithT(t).Expect
	machine := of(t, "red", core, "Machine", "m")
	Expect(unstructured.SetNestedField(machine.Object, "red", "spec", "clusterName")).To(Succeed())
	Expect(unstructured.SetNestedField(machine.Object, "n", "status", "nodeRef", "name")).To(Succeed())
	f := fleet{holds(served, provisionedCluster(t, "red"), machine), map[string]*apiServer{}}
	Expect(f.run(just(core, "Machine", "m")).Run(t.Context())).To(MatchError(HaveSuffix("its Node n in workload cluster ns/red: no route")))

	f.workloads["red"] = holds(served, ofBoth(), node("other", map[string]string{"team": "ml"}, map[string]string{"heirloom.dev/labels-from-machine": "team"}))
	r := f.run(just(core, "Machine", "m"))
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(r.out.String()).To(Equal("node/n released in workload cluster ns/red\n"))
	Expect(f.workloads["red"].written()).To(Equal([]string{"patch Node n", "patch Node n"}))

	own := holds(served, provisionedCluster(t, "red"), machine, ofBoth())
	options := just(core, "Machine", "m")
	options.ManagementCluster = types.NamespacedName{Namespace: "ns", Name: "red"}
	Expect(releasing(own, options).Run(t.Context())).To(Succeed())
	Expect(own.written()).To(ContainElement("patch Node n"), "of the management cluster itself")
}

func TestOneCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	beside := teamed(t, infra, "InfraMachine", "beside") // its provider does not copy labels
	beside.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: core, Kind: "Machine", Name: "m", UID: "m"}})
	elsewhere := of(t, "red", core, "Machine", "elsewhere")
	elsewhere.SetNamespace("other")
	f := fleet{holds(served, provisionedCluster(t, "red"), provisionedCluster(t, "blue"), keys(key), beside, elsewhere,
		of(t, "red", core, "Machine", "m"), of(t, "red", infra, "InfraMachine", "i"), of(t, "red", controlPlane, "ControlPlane", "cp"),
		of(t, "blue", core, "Machine", "b"), of(t, "blue", infra, "InfraMachine", "bi"), teamed(t, infra, "InfraMachine", "stray"), ofBoth(),
	), map[string]*apiServer{"red": holds(served, ofBoth()), "blue": holds(served, ofBoth())}}
	r := f.run(just(core, "Cluster", "red"))
	Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
	written := f.management.written()
	slices.Sort(written)
	Expect(written).To(Equal([]string{"patch ControlPlane cp", "patch InfraMachine beside", "patch InfraMachine i", "patch Machine m"}), "the keys stay")
	Expect(f.workloads["red"].written()).To(Equal([]string{"patch Node n", "patch Node n"}))
	Expect(f.workloads["blue"].written()).To(BeEmpty())

	delete(f.workloads, "red")
	Expect(f.run(just(core, "Cluster", "red")).Run(t.Context())).To(MatchError(HaveSuffix("workload cluster ns/red: no route")))
	f.management.broken("list Machine", errors.New("no answer"))
	Expect(f.run(just(core, "Cluster", "red")).Run(t.Context())).To(MatchError(ContainSubstring("no answer")))
}

// Of the management cluster's own Nodes, those of the Cluster's Machines are released.
func TestTheManagementClustersOwnCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	machine := of(t, "red", core, "Machine", "m")
	Expect(unstructured.SetNestedField(machine.Object, "x://1", "spec", "providerID")).To(Succeed())
	mine, theirs := ofBoth(), ofBoth()
	mine.Spec.ProviderID, theirs.Spec.ProviderID, theirs.Name = "x://1", "x://2", "theirs"
	management := holds(served, provisionedCluster(t, "red"), machine, mine, theirs)
	options := just(core, "Cluster", "red")
	options.ManagementCluster = types.NamespacedName{Namespace: "ns", Name: "red"}
	Expect(releasing(management, options).Run(t.Context())).To(Succeed())
	Expect(management.written()).To(Equal([]string{"patch Machine m", "patch Node n", "patch Node n"}))
}
