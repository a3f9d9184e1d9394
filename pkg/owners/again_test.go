// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// versioned answers with the version and the UID of each object, by its name; takes is how long an answer takes.
type versioned struct {
	client.Reader
	of    map[string]string
	uids  map[string]types.UID
	err   error
	takes time.Duration

	mu    sync.Mutex
	asked []string
}

func (v *versioned) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	v.mu.Lock()
	v.asked = append(v.asked, key.Name)
	v.mu.Unlock()
	<-time.After(v.takes)
	if v.err != nil {
		return v.err
	}
	if v.of[key.Name] == "" {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	into.SetName(key.Name)
	into.SetResourceVersion(v.of[key.Name])
	into.SetUID("uid")
	if uid := v.uids[key.Name]; uid != "" {
		into.SetUID(uid)
	}
	return nil
}

// deciding is a decision that gets these objects one after the other; it tells how often it was made, and what it has read last.
func deciding(times *int, names ...string) func(context.Context, *Chain) (string, error) {
	return func(ctx context.Context, c *Chain) (string, error) {
		*times++
		read := ""
		for _, name := range names {
			ms := &clusterv1.MachineSet{}
			if err := c.Get(ctx, types.NamespacedName{Namespace: "ns", Name: name}, ms, ofUID("uid")); err != nil {
				read += name + "? "
				continue
			}
			read += name + ms.ResourceVersion + " "
		}
		return read, nil
	}
}

func doubtful(string) bool { return true }

// What the API server has as the cache has it is not decided twice; anything else is.
func TestASecondDecision(t *testing.T) {
	cached := map[string]string{"a": "1", "b": "1"}
	unlisted := apierrors.NewTimeoutError("failed waiting for the informer to sync", 0)
	for _, tc := range []struct {
		name     string
		live     map[string]string
		uids     map[string]types.UID
		err      error
		names    []string
		cacheErr error
		twice    bool
		want     string
		counted  []metrics.LookupResult
	}{
		{
			name: "nothing is new", live: cached, names: []string{"a", "b"}, want: "a1 b1 ",
			counted: []metrics.LookupResult{metrics.Live, metrics.Live},
		},
		{name: "one has changed", live: map[string]string{"a": "1", "b": "2"}, names: []string{"a", "b"}, twice: true, want: "a1 b2 "},
		{name: "one is older than the cache", live: map[string]string{"a": "1", "b": "0"}, names: []string{"a", "b"}, twice: true, want: "a1 b0 "},
		{name: "one is another object", live: cached, uids: map[string]types.UID{"b": "another"}, names: []string{"a", "b"}, twice: true, want: "a1 b1 "},
		{name: "one is gone", live: map[string]string{"a": "1"}, names: []string{"a", "b"}, twice: true, want: "a1 b? "},
		{name: "one is new", live: map[string]string{"a": "1", "c": "1"}, names: []string{"a", "c"}, twice: true, want: "a1 c1 "},
		{
			name: "one is nowhere", live: map[string]string{"a": "1"}, names: []string{"a", "c"}, want: "a1 c? ",
			counted: []metrics.LookupResult{metrics.Live, metrics.Missing},
		},
		{name: "the API server does not answer", live: cached, err: errors.New("refused"), names: []string{"a"}, twice: true, want: "a1 "},
		{name: "the cache cannot list the kind", live: map[string]string{"a": "1"}, cacheErr: unlisted, names: []string{"a"}, twice: true, want: "a1 "},
		{name: "neither says anything", err: errors.New("refused"), cacheErr: unlisted, names: []string{"a"}, twice: true, want: "a? "},
		{name: "nothing was read", live: cached, twice: true, want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, times := NewWithT(t).Expect, 0
			var counted []metrics.LookupResult
			chain := &Chain{Reader: Cached{
				Reader: &versioned{of: cached, err: tc.cacheErr}, Count: func(result metrics.LookupResult) { counted = append(counted, result) },
			}}
			decided, err := Recheck(t.Context(), chain, &versioned{of: tc.live, uids: tc.uids, err: tc.err}, doubtful, deciding(&times, tc.names...))
			Expect(err).NotTo(HaveOccurred())
			Expect(decided).To(Equal(tc.want))
			Expect(times == 2).To(Equal(tc.twice))
			if !tc.twice {
				Expect(counted[len(tc.names):]).To(Equal(tc.counted))
			}
		})
	}
}

// One round trip is enough for all that the cache leads to, and each object is read once. What only the API server leads to is read
// then.
func TestReadsOfASecondDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, times, start := NewWithT(t).Expect, 0, time.Now()
		live := &versioned{of: map[string]string{"a": "2", "b": "2", "c": "2", "d": "2"}, takes: time.Second / 10}
		cache := &versioned{of: map[string]string{"a": "1", "b": "1", "c": "1"}}
		decided, err := Recheck(t.Context(), &Chain{Reader: cache}, live, doubtful, func(ctx context.Context, c *Chain) (string, error) {
			names := []string{"a", "b", "c", "a", "b"}
			if times == 1 {
				names = append(names, "d", "a", "d")
			}
			return deciding(&times, names...)(ctx, c.CallingNobody())
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(decided).To(Equal("a2 b2 c2 a2 b2 d2 a2 d2 "))
		Expect(time.Since(start)).To(Equal(2 * live.takes))
		slices.Sort(live.asked)
		Expect(live.asked).To(Equal([]string{"a", "b", "c", "d"}))
	})
}

// An API server that does not answer costs a decision no more than liveTimeout in all.
func TestASecondDecisionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, times, start := NewWithT(t).Expect, 0, time.Now()
		live := &versioned{takes: time.Hour}
		cache := &versioned{of: map[string]string{"a": "1", "b": "1"}}
		Expect(Recheck(t.Context(), &Chain{Reader: cache}, live, doubtful, deciding(&times, "a", "b"))).To(Equal("a1 b1 "))
		Expect(time.Since(start)).To(Equal(liveTimeout))
		<-time.After(live.takes) // until its reads have ended
	})
}
