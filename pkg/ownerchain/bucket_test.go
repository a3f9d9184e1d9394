// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// inOneBucket returns different values that fall into the same bucket.
func inOneBucket(t *testing.T, prefix string) (one, other string) {
	t.Helper()
	first := map[string]string{}
	for n := range buckets + 1 {
		value := fmt.Sprint(prefix, n)
		if before, ok := first[bucketOf(value)]; ok {
			return before, value
		}
		first[bucketOf(value)] = value
	}
	t.Fatal("there are more values than buckets")
	return "", ""
}

// What only shares a bucket with the value that is looked for is not found.
func TestWhatIsInTheSameBucketIsAnother(t *testing.T) {
	Expect := NewWithT(t).Expect
	id, otherID := inOneBucket(t, "acme://")
	name, otherName := inOneBucket(t, "node-")
	machine := func(name, id, node string) *capi.Machine {
		m := &capi.Machine{ObjectMeta: named(name, "")}
		m.Spec.ClusterName, m.Spec.ProviderID, m.Status.NodeRef.Name = "c", id, node
		return m
	}
	pool := func(name string, ids ...string) *capi.MachinePool {
		mp := &capi.MachinePool{ObjectMeta: named(name, "")}
		mp.Spec.ClusterName, mp.Spec.ProviderIDList = "c", ids
		return mp
	}
	node := func(name, id string) *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.Spec.ProviderID = name, id
		return n
	}
	m, mp := machine("by-id", id, ""), pool("pool", "acme://a", id)
	held := holds(t, m, machine("other-id", otherID, ""), machine("by-name", "", name), machine("other-name", "", otherName),
		mp, pool("other-pool", otherID), node(name, ""), node(otherName, ""), node("by-id", id), node("other-id", otherID))
	c := &Chain{Reader: Cached{Reader: held}}
	names := func(machines []capi.Machine, err error) []string {
		Expect(err).NotTo(HaveOccurred())
		var all []string
		for i := range machines {
			all = append(all, machines[i].Name)
		}
		return all
	}
	Expect(names(c.machines(t.Context(), providerIDField, id))).To(Equal([]string{"by-id"}))
	Expect(names(c.machines(t.Context(), providerIDField, otherID))).To(Equal([]string{"other-id"}))
	Expect(names(c.machines(t.Context(), nodeNameField, name))).To(Equal([]string{"by-name"}))
	pools, err := c.pools(t.Context(), id)
	Expect(err).NotTo(HaveOccurred())
	Expect(pools).To(HaveLen(1))
	Expect(pools[0].Name).To(Equal("pool"))

	m.Status.NodeRef.Name = name
	Expect(NodesOf(t.Context(), held, m)).To(ConsistOf(types.NamespacedName{Name: "by-id"}, types.NamespacedName{Name: name}))
	Expect(NodesOf(t.Context(), held, mp)).To(ConsistOf(types.NamespacedName{Name: "by-id"}))
}
