// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// slow is a slow API server: each answer has the version of the object at the beginning of the read.
type slow struct {
	client.Reader
	takes      time.Duration
	fail       func() error
	reads, now atomic.Int32
}

func (s *slow) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads.Add(1)
	into.SetName(key.Name)
	into.SetUID(types.UID(key.Name))
	into.SetResourceVersion(strconv.Itoa(int(s.now.Load())))
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.fail != nil {
		return s.fail()
	}
	return nil
}

// ask requests ns/ms, and returns a channel for its version, or the error.
func ask(live *owners.Live) <-chan string {
	answer := make(chan string, 1)
	go func() {
		got := &clusterv1.MachineSet{}
		if err := live.Get(context.Background(), toSet, got); err != nil {
			answer <- err.Error()
			return
		}
		answer <- got.ResourceVersion
	}()
	synctest.Wait()
	return answer
}

var toSet = client.ObjectKey{Namespace: "ns", Name: "ms"}

// For any number of callers, two successive reads answer all of them, and no answer is older than its request.
func TestLiveReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: 10 * time.Millisecond}
		live := &owners.Live{Reader: server}
		first := ask(live)
		server.now.Store(2)
		var later []<-chan string
		for range 100 {
			later = append(later, ask(live))
		}
		Expect(server.reads.Load()).To(BeEquivalentTo(1), "they wait for the next one")
		Expect(<-first).To(Equal("0"))
		synctest.Wait()
		Expect(server.reads.Load()).To(BeEquivalentTo(2), "which has begun")
		server.now.Store(3)
		last := ask(live)
		for _, answer := range later {
			Expect(<-answer).To(Equal("2"))
		}
		Expect(<-last).To(Equal("3"))
		Expect(server.reads.Load()).To(BeEquivalentTo(3))
		server.now.Store(4)
		Expect(<-ask(live)).To(Equal("4"), "nothing is kept")
	})
}

// Callers that come one after the other share a read of an object that was read lately. The first caller does not wait, and other objects
// do not.
func TestLiveReadsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{}
		live, start := &owners.Live{Reader: server, Gather: 10 * time.Millisecond}, time.Now()
		Expect(<-ask(live)).To(Equal("0"))
		Expect(time.Since(start)).To(BeZero())
		var later []<-chan string
		for version := range int32(5) {
			<-time.After(time.Millisecond)
			server.now.Store(version)
			later = append(later, ask(live))
		}
		Expect(live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "other"}, &clusterv1.MachineSet{})).To(Succeed())
		Expect(time.Since(start)).To(Equal(5 * time.Millisecond))
		server.now.Store(6)
		for _, answer := range later {
			Expect(<-answer).To(Equal("6"), "no answer is older than its request")
		}
		Expect(time.Since(start)).To(Equal(11 * time.Millisecond))
		Expect(server.reads.Load()).To(BeEquivalentTo(3))
		<-time.After(2 * time.Second)
		Expect(<-ask(live)).To(Equal("6"))
		Expect(time.Since(start)).To(Equal(2011*time.Millisecond), "nobody waits long after a read")
	})
}

// A caller that gives up does not cancel the read for others, and a hanging read ends after a second. It delays no other object.
func TestLiveReadsFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: 10 * time.Millisecond}
		live := &owners.Live{Reader: server}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- live.Get(ctx, toSet, &clusterv1.MachineSet{}) }()
		synctest.Wait()
		second := ask(live)
		Expect(<-first).To(MatchError(context.DeadlineExceeded))
		Expect(<-second).To(Equal("0"))

		server.takes = time.Hour
		start, hangs := time.Now(), ask(live)
		server.takes = 0
		for i := range 1000 {
			for _, into := range []client.Object{&clusterv1.MachineSet{}, &clusterv1.Machine{}, &unstructured.Unstructured{}} {
				Expect(live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: strconv.Itoa(i)}, into)).To(Succeed())
			}
		}
		Expect(live.Get(t.Context(), toSet, &clusterv1.Machine{})).To(Succeed(), "another kind is another object")
		Expect(live.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "ms"}, &clusterv1.MachineSet{})).To(Succeed())
		Expect(time.Since(start)).To(BeZero())
		Expect(<-hangs).To(ContainSubstring(context.DeadlineExceeded.Error()))
		Expect(time.Since(start)).To(Equal(time.Second))
		Expect(<-ask(live)).To(Equal("0"))
	})
}

// An error is the answer for all waiting callers, and for no later caller. A panic does not end the program.
func TestLiveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := &slow{takes: time.Millisecond}
		live := &owners.Live{Reader: server}
		for want, fail := range map[string]func() error{
			"refused": func() error { return errors.New("refused") }, "reading *v1beta2.MachineSet ns/ms: panic: oops": func() error { panic("oops") },
		} {
			server.fail = fail
			for _, answer := range []<-chan string{ask(live), ask(live), ask(live)} {
				Expect(<-answer).To(Equal(want))
			}
			server.fail = nil
			Expect(<-ask(live)).To(Equal("0"))
		}
	})
}

// whoever evaluates the MachineSet of a Machine, and returns the label that it declares.
func whoever(ctx context.Context, c *owners.Chain) (string, error) {
	owner, err := c.MachineOwner(ctx, machine("m", "MachineSet/ms"))
	if err != nil || owner.Template == nil {
		return "nobody", err
	}
	return strings.Join(slices.Collect(maps.Keys(owner.Template.Labels)), " "), nil
}

// A doubtful decision is made again with live reads; an error there leaves the first decision.
func TestRecheck(t *testing.T) {
	refused := errors.New("refused")
	another := machineSet("", setDeclares("live"), func(ms *clusterv1.MachineSet) { ms.UID = "another" })
	for _, tc := range []struct {
		name                   string
		live                   client.Reader
		certain, failing, none bool
		want                   string
		counted                []metrics.LookupResult
	}{
		{name: "no doubt", live: holds(t, machineSet("", setDeclares("live"))), certain: true, want: "cache", counted: []metrics.LookupResult{metrics.Cached}},
		{name: "in doubt", live: holds(t, machineSet("", setDeclares("live"))), want: "live", counted: []metrics.LookupResult{metrics.Cached, metrics.Live}},
		{name: "in doubt, with nobody to ask", want: "cache", counted: []metrics.LookupResult{metrics.Cached}},
		{name: "what is gone there is gone", live: holds(t), want: "nobody", counted: []metrics.LookupResult{metrics.Cached, metrics.Missing}},
		{name: "what has another UID there is gone", live: holds(t, another), want: "nobody", counted: []metrics.LookupResult{metrics.Cached, metrics.Missing}},
		{name: "the API server does not answer", live: fails(refused), want: "cache", counted: []metrics.LookupResult{metrics.Cached, metrics.LookupFailed}},
		{name: "the limit is reached", live: holds(t, machineSet("", setDeclares("live"))), none: true, want: "cache", counted: []metrics.LookupResult{metrics.Cached, metrics.LookupFailed}},
		{name: "the second decision fails", live: holds(t, machineSet("", setDeclares("live"))), failing: true, want: "cache", counted: []metrics.LookupResult{metrics.Cached, metrics.Live}},
	} {
		Expect := NewWithT(t).Expect
		var counted []metrics.LookupResult
		chain, times := admission(holds(t, machineSet("", setDeclares("cache"))), tc.live), 0
		chain.Count = func(result metrics.LookupResult) { counted = append(counted, result) }
		if tc.none {
			chain.Live = owners.Limited{Reader: tc.live, Allow: func() bool { return false }}
		}
		decided, err := owners.Recheck(t.Context(), chain, func(string) bool { return !tc.certain }, func(ctx context.Context, c *owners.Chain) (string, error) {
			times++
			who, err := whoever(ctx, c)
			if times == 2 && tc.failing {
				err = refused
			}
			return who, err
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(decided).To(Equal(tc.want), tc.name)
		Expect(counted).To(Equal(tc.counted), tc.name)
	}
	_, err := owners.Recheck(t.Context(), admission(fails(refused), holds(t, machineSet("", setDeclares("live")))), func(string) bool { return true }, whoever)
	NewWithT(t).Expect(err).To(MatchError(refused), "without a first decision there is nothing to check")
}

// recheckNode evaluates a Node twice, and returns both decisions.
func recheckNode(ctx context.Context, t *testing.T, chain *owners.Chain, known string) (first, second owners.NodeDecision) {
	t.Helper()
	decided := func(d owners.NodeDecision) bool { first = d; return true }
	second, err := owners.Recheck(ctx, chain.Within(itself), decided, func(ctx context.Context, c *owners.Chain) (owners.NodeDecision, error) {
		return c.SourceOf(ctx, inherit.ReadNode(node(known), time.Time{}), inherit.Policy{})
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return first, second
}

// decideNode decides about Node n as the loop does before a write.
func decideNode(ctx context.Context, chain *owners.Chain) (owners.NodeDecision, error) {
	return owners.DecideLive(ctx, chain.Within(itself), func(ctx context.Context, c *owners.Chain) (owners.NodeDecision, error) {
		return c.SourceOf(ctx, inherit.ReadNode(node("n"), time.Time{}), inherit.Policy{})
	})
}

// Before a write, the loop decides from live reads alone: it can wait, so an object that cannot be read is an error. Only a control plane
// may fail, because its provider's conversion webhook may be broken: the Node then inherits from its Machine as it is.
func TestTheLoopDecidesFromLiveReadsAlone(t *testing.T) {
	all := []client.Object{
		managedCluster(), clusterClass(), machineDeployment("md", also[*clusterv1.MachineDeployment](ofTopology)), machineSet("MachineDeployment/md"),
		machine("m", "MachineSet/ms", isNode), controlPlane("c"),
	}
	refused := errors.New("refused")
	for _, kind := range []string{"Machine ", "Cluster ", "ClusterClass ", "MachineSet ", "MachineDeployment "} {
		live := holds(t, all...)
		live.broken, live.err = kind, refused
		_, err := decideNode(t.Context(), reading(holds(t, all...), live))
		NewWithT(t).Expect(err).To(MatchError(refused), kind)
	}
	Expect := NewWithT(t).Expect
	decided, err := decideNode(t.Context(), reading(holds(t, all...), holds(t, all...)))
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Source.Labels).To(HaveKey("fromCluster"))

	all[4] = machine("m", byControlPlane, isNode)
	live := holds(t, all...)
	live.broken, live.err = acme, refused
	decided, err = decideNode(t.Context(), reading(holds(t, all...), live))
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Inherits()).To(BeTrue())
	Expect(decided.Source.Labels).NotTo(HaveKey("fromControlPlane"), "the cache does not decide")
}

// An API server that does not answer costs the loop a second for each decision, for any number of owners, and admission the time of its
// caller.
func TestADecisionIsBounded(t *testing.T) {
	cached := []client.Object{ofCluster("c"), machineSet("MachineDeployment/md"), machineDeployment("md"), machine("m", "MachineSet/ms", isNode)}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := decideNode(t.Context(), reading(holds(t, cached...), &slow{takes: time.Hour}))
		NewWithT(t).Expect(err).To(MatchError(context.DeadlineExceeded))
		NewWithT(t).Expect(time.Since(start)).To(Equal(time.Second))
	})
	for _, waits := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), waits)
			defer cancel()
			chain := admission(holds(t, cached...), &slow{takes: time.Hour})
			_, decided := recheckNode(ctx, t, chain, "n")
			NewWithT(t).Expect(decided.Inherits()).To(BeTrue())
			NewWithT(t).Expect(time.Since(start)).To(Equal(waits))
		})
	}
}

// The cache finds the Machine or MachinePool of a Node; a second decision checks with a live read that the match still holds.
func TestLiveReadsCheckMatches(t *testing.T) {
	for _, tc := range []struct {
		name         string
		node         string
		cached, live client.Object
		inherits     bool
	}{
		{name: "a Machine that is still the Node", node: "n", cached: machine("m", "", isNode), live: machine("m", "", isNode), inherits: true},
		{name: "a Machine that is another Node", node: "n", cached: machine("m", "", isNode), live: machine("m", "", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "other" })},
		{name: "a Machine that is another instance", node: "n aws:1", cached: machine("m", "", provided), live: machine("m", "", func(m *clusterv1.Machine) { m.Spec.ProviderID = "aws:2" })},
		{name: "a Machine that is gone", node: "n", cached: machine("m", "", isNode)},
		{name: "another Machine under the name", node: "n", cached: machine("m", "", isNode), live: machine("m", "", isNode, func(m *clusterv1.Machine) { m.UID = "another" })},
		{name: "a Machine of another Cluster", node: "n", cached: machine("m", "", isNode), live: machine("m", "", isNode, elsewhere)},
		{name: "a MachinePool that still names the Node", node: "n aws:1", cached: machinePool("mp", "aws:1"), live: machinePool("mp", "aws:1", "aws:2"), inherits: true},
		{name: "a MachinePool that names it no more", node: "n aws:1", cached: machinePool("mp", "aws:1"), live: machinePool("mp", "aws:2")},
		{name: "a MachinePool that is gone", node: "n aws:1", cached: machinePool("mp", "aws:1")},
	} {
		live := []client.Object{ofCluster("c"), ofCluster("other")}
		if tc.live != nil {
			live = append(live, tc.live)
		}
		first, second := recheckNode(t.Context(), t, admission(holds(t, ofCluster("c"), tc.cached), holds(t, live...)), tc.node)
		NewWithT(t).Expect(first.Inherits()).To(BeTrue(), "%s: the cache is behind", tc.name)
		NewWithT(t).Expect(second.Inherits()).To(Equal(tc.inherits), tc.name)
	}
}
