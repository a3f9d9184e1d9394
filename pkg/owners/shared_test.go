// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slow is an API server that takes its time: each answer is the version that the object had when the read began.
type slow struct {
	client.Reader
	takes time.Duration
	fail  func() error

	mu    sync.Mutex
	reads int
	now   int
}

func (s *slow) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	s.reads++
	version, fail := s.now, s.fail
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if fail != nil {
		return fail()
	}
	into.SetName(key.Name)
	into.SetUID("ms")
	into.SetLabels(map[string]string{"by": "live"})
	into.SetResourceVersion(strconv.Itoa(version))
	return nil
}

// change changes the object, which then has this version.
func (s *slow) change(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = version
}

func (s *slow) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func toSet() reference {
	return refer(client.ObjectKey{Namespace: "ns", Name: "ms"}, &clusterv1.MachineSet{})
}

// However many ask, two reads in a row answer all of them, and no answer is older than its question.
func TestSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: 10 * time.Millisecond, now: 1}
		shared := &Shared{Reader: server}
		first := shared.ask(t.Context(), toSet())
		synctest.Wait() // it has begun
		server.change(2)
		var later []*read
		for range 100 {
			later = append(later, shared.ask(t.Context(), toSet()))
		}
		Expect(server.count()).To(Equal(1))
		Expect(first.wait(t.Context())).To(HaveField("ResourceVersion", "1"))
		synctest.Wait() // the next one has begun
		server.change(3)
		last := shared.ask(t.Context(), toSet())
		for _, one := range later {
			Expect(one.wait(t.Context())).To(HaveField("ResourceVersion", "2"))
		}
		Expect(last.wait(t.Context())).To(HaveField("ResourceVersion", "3"))
		Expect(server.count()).To(Equal(3))
		synctest.Wait()
		Expect(shared.objects).To(BeEmpty(), "nothing is kept")
		server.change(4)
		Expect(shared.ask(t.Context(), toSet()).wait(t.Context())).To(HaveField("ResourceVersion", "4"))
	})
}

// A caller that gives up does not take the answer from others, and a read that hangs does not hold up others for long.
func TestSharedReadsFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: 10 * time.Millisecond, now: 1}
		shared := &Shared{Reader: server}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		Expect(shared.Get(gone, toSet().key, &clusterv1.MachineSet{})).To(MatchError(context.Canceled))
		got := &clusterv1.MachineSet{}
		Expect(shared.Get(t.Context(), toSet().key, got)).To(Succeed())
		Expect(got.Labels).To(HaveKeyWithValue("by", "live"))

		server.takes = time.Hour
		start := time.Now()
		hangs := shared.ask(t.Context(), toSet())
		synctest.Wait()
		server.takes = 0
		Expect(shared.Get(t.Context(), toSet().key, got)).To(Succeed())
		Expect(time.Since(start)).To(Equal(patience))
		_, err := hangs.wait(t.Context())
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(Equal(liveTimeout))
		synctest.Wait()
		Expect(shared.objects).To(BeEmpty())
	})
}

// An error is the answer for all that wait for it, and for nobody after them. Nor does a panic end the program.
func TestSharedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: time.Millisecond}
		shared := &Shared{Reader: server}
		for want, fail := range map[string]func() error{
			"refused":     func() error { return errors.New("refused") },
			"panic: oops": func() error { panic("oops") },
		} {
			server.fail = fail
			shared.ask(t.Context(), toSet())
			synctest.Wait()
			for range 2 {
				_, err := shared.ask(t.Context(), toSet()).wait(t.Context())
				Expect(err).To(MatchError(ContainSubstring(want)))
			}
			server.fail = nil
			Expect(shared.Get(t.Context(), toSet().key, &clusterv1.MachineSet{})).To(Succeed())
		}
	})
}

// Those that share an answer may change what they get. Only one that asks for no copy must not.
func TestSharedAnswersAreCopies(t *testing.T) {
	Expect := NewWithT(t).Expect
	shared := &Shared{Reader: &slow{}}
	one := shared.ask(t.Context(), toSet())
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			got := &clusterv1.MachineSet{}
			if one.copyTo(t.Context(), got) == nil {
				got.Labels["by"] = strconv.Itoa(i)
			}
		})
	}
	all.Wait()
	got := &clusterv1.MachineSet{}
	Expect(one.copyTo(t.Context(), got, client.UnsafeDisableDeepCopy)).To(Succeed())
	Expect(got.Labels).To(HaveKeyWithValue("by", "live"))
}

// Objects of another name, type or kind are other objects.
func TestReferences(t *testing.T) {
	Expect := NewWithT(t).Expect
	key, kind := client.ObjectKey{Namespace: "ns", Name: "a"}, schema.GroupVersionKind{Group: "g", Version: "v", Kind: "A"}
	of := func(into client.Object, kind schema.GroupVersionKind) client.Object {
		into.GetObjectKind().SetGroupVersionKind(kind)
		return into
	}
	all := map[reference]bool{}
	for range 2 {
		for _, into := range []client.Object{
			&clusterv1.Machine{}, &clusterv1.MachineSet{}, of(&unstructured.Unstructured{}, kind), of(&metav1.PartialObjectMetadata{}, kind),
			of(&unstructured.Unstructured{}, schema.GroupVersionKind{Group: "g", Version: "v", Kind: "B"}),
		} {
			to := refer(key, into)
			all[to] = true
			Expect(to.empty()).To(Equal(into))
		}
	}
	all[refer(client.ObjectKey{Name: "a"}, &clusterv1.Machine{})] = true
	Expect(all).To(HaveLen(6))
}

// A limit counts the reads that would not be made otherwise. Who has used it up still gets an answer that is on its way to others.
func TestLimitOfSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		shared, left := &Shared{Reader: &slow{takes: time.Millisecond}}, 1
		limited := Limited{Reader: shared, Allow: func(context.Context) bool { left--; return left >= 0 }}
		get := func() error { return limited.Get(t.Context(), toSet().key, &clusterv1.MachineSet{}) }
		shared.ask(t.Context(), toSet())
		synctest.Wait()
		shared.ask(t.Context(), toSet())
		Expect(get()).To(Succeed())
		Expect(left).To(Equal(1), "it shares a read of others")
		Expect(get()).To(Succeed())
		Expect(get()).To(MatchError("too many reads"))
		synctest.Wait()
		Expect(shared.objects).To(BeEmpty())
	})
}
