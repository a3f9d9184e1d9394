// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// diary is a queue that notes when each is to be taken from it.
type diary struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	now  func() time.Time
	when map[string]sets.Set[time.Time]
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (d diary) AddAfter(one reconcile.Request, wait time.Duration) {
	if d.when[one.Name] == nil {
		d.when[one.Name] = sets.New[time.Time]()
	}
	d.when[one.Name].Insert(d.now().Add(wait))
}

// However many Machines change, the first makes their Cluster be looked at, and then it is once in a second for all of them.
// No change waits for longer than that, and no Cluster for another.
func TestABurstOfMachineEventsWakesTheirClusterTwice(t *testing.T) {
	Expect := NewWithT(t).Expect
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	now := start
	clock := func() time.Time { return now }
	d := diary{now: clock, when: map[string]sets.Set[time.Time]{}}
	h := newSpacing(time.Second, clock).handler(enqueue(func(_ context.Context, m client.Object) ([]types.NamespacedName, error) {
		if m.GetName() == "lost" {
			return nil, errors.New("no cache")
		}
		return []types.NamespacedName{{Namespace: "ns", Name: m.GetNamespace()}}, nil
	}))
	machine := func(cluster, name string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	}
	burst := func(cluster string) {
		for range 25 {
			before := now
			m := machine(cluster, "m")
			h.Create(t.Context(), event.CreateEvent{Object: m}, d)
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: m, ObjectNew: m}, d)
			h.Delete(t.Context(), event.DeleteEvent{Object: m}, d)
			h.Generic(t.Context(), event.GenericEvent{Object: m}, d)
			woken := false
			for at := range d.when[cluster] {
				woken = woken || !at.Before(now) && !at.After(before.Add(time.Second))
			}
			Expect(woken).To(BeTrue(), "each event wakes its Cluster within a second")
			now = now.Add(10 * time.Millisecond)
		}
	}
	burst("c")
	Expect(sets.List(unix(d.when["c"]))).To(Equal([]int64{start.UnixMilli(), start.UnixMilli() + 1000}))
	h.Create(t.Context(), event.CreateEvent{Object: machine("d", "m")}, d)
	Expect(sets.List(unix(d.when["d"]))).To(Equal([]int64{start.UnixMilli() + 250}), "another Cluster does not wait")

	for range 19 {
		burst("c") // for five seconds in all
	}
	Expect(d.when["c"]).To(HaveLen(6))

	now = now.Add(time.Minute)
	again := now
	burst("c")
	Expect(d.when["c"].Has(again)).To(BeTrue(), "after a while at once again")
	h.Create(t.Context(), event.CreateEvent{Object: machine("c", "lost")}, d)
	Expect(d.when).To(HaveLen(2))
}

func unix(times sets.Set[time.Time]) sets.Set[int64] {
	all := sets.New[int64]()
	for at := range times {
		all.Insert(at.UnixMilli())
	}
	return all
}
