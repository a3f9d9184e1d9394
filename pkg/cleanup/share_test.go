// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shared returns a management cluster of several Heirlooms: objects named mine have the label mine and are in namespace ns, objects named
// theirs have another label, and objects named far are in another namespace.
func shared(t *testing.T) *apiServer {
	t.Helper()
	var objects []client.Object
	for _, name := range []string{"mine", "theirs", "far"} {
		machine := object(t, core, "Machine", name, `{metadata: {labels: {team: ml}}, spec: {clusterName: own, providerID: "x://`+name+`"}, status: {nodeRef: {name: by-name-`+name+`}}}`,
			owns(core, "heirloom", `{f:metadata: {f:labels: {f:team: {}}}}`))
		machine.SetLabels(map[string]string{"team": "ml", "cluster.x-k8s.io/watch-filter": name})
		pool := object(t, core, "MachinePool", name, `{spec: {clusterName: other, providerIDList: ["x://pool-`+name+`"]}}`)
		pool.SetLabels(machine.GetLabels())
		infraMachine := teamed(t, infra, "InfraMachine", name)
		infraMachine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: core, Kind: "Machine", Name: name, UID: types.UID(name)}})
		if name == "far" {
			for _, o := range []client.Object{machine, pool, infraMachine} {
				o.SetNamespace("elsewhere")
			}
		}
		objects = append(objects, machine, pool, infraMachine)
		for _, id := range []string{"x://" + name, "x://pool-" + name} {
			n := node(strings.TrimPrefix(id, "x://"), map[string]string{"team": "ml"}, map[string]string{"heirloom.dev/labels-from-machine": "team"})
			n.Spec.ProviderID = id
			objects = append(objects, n)
		}
		objects = append(objects, node("by-name-"+name, map[string]string{"team": "ml"}, map[string]string{"heirloom.dev/labels-from-machine": "team"}, corev1.Taint{}))
	}
	return holds(served, objects...)
}

// If several Heirlooms share a management cluster, each cleans up its own objects: objects in its namespace or with its label, the external
// objects of their Machines, and the Nodes of these Machines.
func TestEachGivesUpItsOwn(t *testing.T) {
	all := []string{"patch InfraMachine", "patch Machine", "patch Node", "patch Node by-name-", "patch Node pool-"}
	of := func(names ...string) (writes []string) {
		for _, name := range names {
			for _, write := range all {
				if strings.HasSuffix(write, "-") {
					writes = append(writes, write+name)
				} else {
					writes = append(writes, write+" "+name)
				}
			}
		}
		slices.Sort(writes)
		return writes
	}
	own := types.NamespacedName{Namespace: "ns", Name: "own"}
	for _, tc := range []struct {
		name                   string
		namespace, watchFilter string
		managementCluster      types.NamespacedName
		writes                 []string
	}{
		{name: "without limits, all", writes: of("mine", "theirs", "far")},
		{name: "of a namespace", namespace: "ns", managementCluster: own, writes: of("mine", "theirs")},
		{name: "of several namespaces", namespace: "elsewhere,ns", managementCluster: own,
			writes: slices.DeleteFunc(of("mine", "theirs", "far"), func(write string) bool { return write == "patch Node by-name-far" })},
		{name: "of a label", watchFilter: "mine", managementCluster: own, writes: of("mine")},
		{name: "of both", namespace: "elsewhere", watchFilter: "mine"},
		{name: "of a Cluster that is not the management cluster, by providerID only", watchFilter: "mine",
			writes: []string{"patch InfraMachine mine", "patch Machine mine", "patch Node mine", "patch Node pool-mine"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := shared(t)
			r := cleaning(management, Options{}).within(tc.namespace, tc.watchFilter)
			r.Config.ManagementClusterKey = tc.managementCluster
			Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
			written := management.written()
			slices.Sort(written)
			// A Node is written twice, because the first write makes its taints ours.
			Expect(slices.Compact(written)).To(Equal(tc.writes))
		})
	}
}

// An InfraMachine belongs to the Heirloom of its Machine, whatever label its provider gives it. Its own label counts only without an owner.
func TestProviderObjectsOfAMachine(t *testing.T) {
	Expect := NewWithT(t).Expect
	labeled := func(kind, apiVersion, name, filter string, owners ...string) *unstructured.Unstructured {
		u := teamed(t, apiVersion, kind, name)
		u.SetLabels(map[string]string{"team": "ml", "cluster.x-k8s.io/watch-filter": filter})
		for _, owner := range owners {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: core, Kind: "Machine", Name: owner, UID: types.UID(owner)}})
		}
		return u
	}
	management := holds(served, labeled("Machine", core, "red", "red"), labeled("Machine", core, "blue", "blue", "red"),
		labeled("InfraMachine", infra, "of-red", "", "red"), labeled("InfraMachine", infra, "of-blue", "red", "blue"),
		labeled("InfraMachine", infra, "of-nobody", "red"), labeled("InfraMachine", infra, "of-nobody-else", "blue"))
	Expect(cleaning(management, Options{}).within("", "red").Run(t.Context())).To(Succeed())
	Expect(management.written()).To(ConsistOf("patch Machine red", "patch InfraMachine of-red", "patch InfraMachine of-nobody"))
}

// If the Machines cannot be read, nothing is cleaned up, because the Machines decide which objects are ours.
func TestUnreadableMachinesStopARelease(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := shared(t)
	management.fail["list Machine"] = forbidden
	Expect(cleaning(management, Options{}).within("", "mine").Run(t.Context())).To(MatchError(ContainSubstring("listing Machine.cluster.x-k8s.io: ")))
	Expect(management.written()).To(BeEmpty())
}
