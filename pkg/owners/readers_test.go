// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// labelled is the MachineSet with a label that says who has answered. The API server has another version than the cache.
func labelled(by string) *clusterv1.MachineSet {
	ms := machineSet("")
	ms.Labels, ms.ResourceVersion = map[string]string{"by": by}, map[string]string{"cache": "1", "live": "2"}[by]
	return ms
}

// Each reader answers from where it should, and counts owners, and nothing else, by where they were found.
func TestReaders(t *testing.T) {
	broken := errors.New("timeout")
	cached := func(cache, _ client.Reader, count func(metrics.LookupResult)) client.Reader {
		return Cached{Reader: cache, Count: count}
	}
	thenLive := func(cache, live client.Reader, count func(metrics.LookupResult)) client.Reader {
		return CachedThenLive{Cached: Cached{Reader: cache, Count: count}, Live: live}
	}
	fresh := func(cache, live client.Reader, count func(metrics.LookupResult)) client.Reader {
		return Fresh{Cached: Cached{Reader: cache, Count: count}, Live: live}
	}
	in, live, another := []client.Object{labelled("cache")}, []client.Object{labelled("live")}, labelled("cache")
	another.UID = "another"
	for _, tc := range []struct {
		name         string
		reader       func(cache, live client.Reader, count func(metrics.LookupResult)) client.Reader
		cached, live []client.Object
		refused      error
		options      []client.GetOption
		by           string
		counted      []metrics.LookupResult
	}{
		{name: "Cached: from the cache", reader: cached, cached: in, live: live, options: []client.GetOption{ofUID("ms")}, by: "cache", counted: []metrics.LookupResult{metrics.Cached}},
		{name: "Cached: nowhere else", reader: cached, live: live, options: []client.GetOption{ofUID("ms")}, counted: []metrics.LookupResult{metrics.Missing}},
		{name: "Cached: no owner, not counted", reader: cached, cached: in, by: "cache"},
		{name: "CachedThenLive: first from the cache", reader: thenLive, cached: in, live: live, options: []client.GetOption{ofUID("ms")}, by: "cache", counted: []metrics.LookupResult{metrics.Cached}},
		{name: "CachedThenLive: then from the API server", reader: thenLive, live: live, options: []client.GetOption{ofUID("")}, by: "live", counted: []metrics.LookupResult{metrics.Live}},
		{name: "CachedThenLive: another object has the name", reader: thenLive, cached: []client.Object{another}, live: live, options: []client.GetOption{ofUID("ms")}, by: "live", counted: []metrics.LookupResult{metrics.Live}},
		{name: "CachedThenLive: what is no owner is not worth a call", reader: thenLive, live: live},
		{name: "Fresh: from the API server, also what is no owner", reader: fresh, cached: in, live: live, by: "live"},
		{name: "Fresh: what is gone there is gone", reader: fresh, cached: in, options: []client.GetOption{ofUID("ms")}, counted: []metrics.LookupResult{metrics.Missing}},
		{name: "Fresh: from the cache where the API server does not answer", reader: fresh, cached: in, live: live, refused: broken, options: []client.GetOption{ofUID("ms")}, by: "cache", counted: []metrics.LookupResult{metrics.Live}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := holds(t, tc.live...)
			server.err = tc.refused
			var counted []metrics.LookupResult
			reader, got := tc.reader(holds(t, tc.cached...), server, func(result metrics.LookupResult) { counted = append(counted, result) }), &clusterv1.MachineSet{}
			err := reader.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "ms"}, got, tc.options...)
			if tc.by == "" {
				Expect(apierrors.IsNotFound(err)).To(BeTrue())
			} else {
				Expect(err).NotTo(HaveOccurred())
				Expect(got.Labels).To(HaveKeyWithValue("by", tc.by))
			}
			Expect(counted).To(Equal(tc.counted))

			list := &clusterv1.MachineSetList{}
			Expect(reader.List(t.Context(), list)).To(Succeed())
			Expect(list.Items).To(HaveLen(len(tc.cached)), "lists come from the cache")
		})
	}
}

// A chain that calls nobody keeps the cache and the count, and what is fresh stays fresh.
func TestCallingNobody(t *testing.T) {
	Expect := NewWithT(t).Expect
	cache, live := holds(t, labelled("cache")), holds(t, labelled("live"))
	for want, reader := range map[*reader]client.Reader{
		cache: CachedThenLive{Cached: Cached{Reader: cache}, Live: live},
		live:  Fresh{Cached: Cached{Reader: cache}, Live: live},
	} {
		before := want.gets
		_, err := (&Chain{Reader: reader}).CallingNobody().MachineSet(t.Context(), machine("m", "MachineSet/ms"))
		Expect(err).NotTo(HaveOccurred())
		Expect(want.gets).To(Equal(before + 1))
	}
	Expect(live.gets).To(Equal(1))
}

func TestLimited(t *testing.T) {
	Expect := NewWithT(t).Expect
	cache, left := holds(t, labelled("cache")), 1
	limited := Limited{Reader: holds(t, labelled("live")), Allow: func(context.Context) bool { left--; return left >= 0 }}
	chain := Chain{Reader: Fresh{Cached: Cached{Reader: cache}, Live: limited}}
	for _, by := range []string{"live", "cache"} {
		Expect(chain.MachineSet(t.Context(), machine("m", "MachineSet/ms"))).To(HaveField("Labels", HaveKeyWithValue("by", by)))
	}
}

// What is in doubt is decided once more, by the API server; an error there leaves the first decision.
func TestRecheck(t *testing.T) {
	for _, tc := range []struct {
		name  string
		live  client.Reader
		doubt bool
		fails bool
		want  string
	}{
		{name: "no doubt", live: holds(t, labelled("live")), want: "cache"},
		{name: "in doubt", live: holds(t, labelled("live")), doubt: true, want: "live"},
		{name: "in doubt, with nobody to ask", doubt: true, want: "cache"},
		{name: "in doubt, and the second decision fails", live: holds(t, labelled("live")), doubt: true, fails: true, want: "cache"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			decided, err := Recheck(t.Context(), &Chain{Reader: holds(t, labelled("cache"))}, tc.live, func(string) bool { return tc.doubt },
				func(ctx context.Context, c *Chain) (string, error) {
					ms, err := c.MachineSet(ctx, machine("m", "MachineSet/ms"))
					Expect(err).NotTo(HaveOccurred())
					if _, bounded := ctx.Deadline(); bounded && tc.fails {
						return "", errors.New("failed")
					}
					return ms.Labels["by"], nil
				})
			Expect(err).NotTo(HaveOccurred())
			Expect(decided).To(Equal(tc.want))
		})
	}
}

// The cache may be behind a child that was written later than all that declares for it.
func TestBehind(t *testing.T) {
	version := func(version string) client.Object {
		ms := machineSet("")
		ms.ResourceVersion = version
		return ms
	}
	for _, tc := range []struct {
		name   string
		owners []client.Object
		child  string
		behind bool
	}{
		{name: "the owner is later", owners: []client.Object{version("1000")}, child: "999"},
		{name: "the child is later", owners: []client.Object{version("999")}, child: "1000", behind: true},
		{name: "one of the owners is later", owners: []client.Object{version("9"), version("11")}, child: "10"},
		{name: "nobody can tell", owners: []client.Object{version("b")}, child: "a", behind: true},
		{name: "nothing declares for it", child: "10"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(Decision{declaredBy: tc.owners}.Behind(version(tc.child))).To(Equal(tc.behind))
		})
	}
}

// What a decision was declared by is its owner, whatever the kind.
func TestDeclaredBy(t *testing.T) {
	Expect := NewWithT(t).Expect
	chain := &Chain{Reader: holds(t, machineDeployment("md"), machineSet("MachineDeployment/md"))}
	ofSet, err := MachineSets().Evaluate(t.Context(), chain, machineSet("MachineDeployment/md"), inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(ofSet.declaredBy).To(ConsistOf(HaveField("Name", "md")))
	ofMachine, err := Machines().Evaluate(t.Context(), chain, machine("m", "MachineSet/ms"), inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(ofMachine.declaredBy).To(ConsistOf(HaveField("Name", "ms")))
}
