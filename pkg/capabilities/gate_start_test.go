// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = &Gate{}

// clusterAPI answers dry runs, and notes what they were.
type clusterAPI struct {
	client.Client
	// answer is what it says to a dry run, and answers what it says to a dry run of each namespace, unless that is nil.
	answer  error
	answers func(of *unstructured.Unstructured, force bool) error
	// lists are its answers to the next lists, one after the other. Without an error it lists what there is.
	lists []error
	// limits are how many objects may be in its answers.
	limits []int64
	asked  []*unstructured.Unstructured
	times  []time.Time
}

// errDropped is no answer: the taints are dropped, as a CRD without the field does.
var errDropped = errors.New("dropped")

func newClusterAPI(t *testing.T, objects ...client.Object) *clusterAPI {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	c := &clusterAPI{}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			applied := (&client.ApplyOptions{}).ApplyOptions(options)
			NewWithT(t).Expect(applied.DryRun).To(Equal([]string{metav1.DryRunAll}), "nothing is stored")
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			c.asked, c.times = append(c.asked, &unstructured.Unstructured{Object: content}), append(c.times, time.Now())
			if c.answers == nil {
				return c.answer
			}
			err = c.answers(&unstructured.Unstructured{Object: content}, applied.Force != nil && *applied.Force)
			if errors.Is(err, errDropped) {
				prune(config)
				return nil
			}
			return err
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			c.limits = append(c.limits, (&client.ListOptions{}).ApplyOptions(options).Limit)
			if len(c.lists) > 0 {
				err := c.lists[0]
				c.lists = c.lists[1:]
				return err
			}
			return inner.List(ctx, list, options...)
		},
	}).Build()
	return c
}

func machine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "1"}}
}

func machineSet() *clusterv1.MachineSet {
	return &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ms", UID: "2"}}
}

// The taint is harmless, and the object must be the one that was read: an apply would create another one of its name.
func TestWhatIsAsked(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []client.Object
		kind    string
		uid     types.UID
		path    []string
	}{
		{name: "of a Machine", objects: []client.Object{machineSet(), machine("m")}, kind: "Machine", uid: "1", path: []string{"spec", "taints"}},
		{name: "of a MachineSet, where there are no Machines", objects: []client.Object{machineSet()}, kind: "MachineSet", uid: "2", path: []string{"spec", "template", "spec", "taints"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			c := newClusterAPI(t, tc.objects...)
			g := &Gate{Client: c}
			Expect(g.detect(t.Context())).To(Succeed())
			Expect(g.State()).To(Equal(inherit.PropagationEnabled))
			Expect(c.asked).To(HaveLen(1))
			Expect(c.asked[0].GetKind()).To(Equal(tc.kind))
			Expect(c.asked[0].GetUID()).To(Equal(tc.uid))
			taints, found, err := unstructured.NestedSlice(c.asked[0].Object, tc.path...)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeTrue())
			Expect(taints).To(ConsistOf(And(HaveKeyWithValue("effect", "PreferNoSchedule"), HaveKeyWithValue("propagation", "OnInitialization"))))
		})
	}
}

func TestWhatWasKnownStaysWhileNothingCanBeRead(t *testing.T) {
	away := errors.New("away")
	for _, tc := range []struct {
		name    string
		lists   []error
		problem string
	}{
		{name: "Machines", lists: []error{away}, problem: "listing Machines: away"},
		{name: "MachineSets", lists: []error{nil, away}, problem: "listing MachineSets: away"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			c := newClusterAPI(t)
			g := &Gate{Client: c}
			g.state.Store(int32(inherit.PropagationDisabled))
			changes := g.Subscribe()
			c.lists = tc.lists
			Expect(g.detect(t.Context())).To(MatchError(tc.problem))
			Expect(g.State()).To(Equal(inherit.PropagationDisabled))
			Expect(c.asked).To(BeEmpty())
			Expect(changes).NotTo(Receive())
		})
	}
}

// It asks soon again while it knows nothing, and later now and then, as the gate may be switched.
func TestItIsAskedAgainAndAgain(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval time.Duration
		answer   error
		wait     time.Duration
	}{
		{name: "what is known is asked again after the interval", interval: 20 * time.Second, wait: 20 * time.Second},
		{name: "but once a minute at least", interval: time.Hour, wait: time.Minute},
		{name: "what is not known is asked again soon", interval: time.Hour, answer: errors.New("away"), wait: retry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				c := newClusterAPI(t, machine("m"))
				c.answer = tc.answer
				g := &Gate{Client: c, Interval: tc.interval}
				Expect(g.NeedLeaderElection()).To(BeFalse(), "every replica answers admission requests")
				var logged []string
				ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
				ctx, cancel := context.WithTimeout(ctx, 5*tc.wait)
				defer cancel()
				Expect(g.Start(ctx)).To(Succeed())
				Expect(len(c.times)).To(BeNumerically(">=", 4))
				for i := range c.times[1:] {
					Expect(c.times[i+1].Sub(c.times[i])).To(And(BeNumerically(">=", tc.wait), BeNumerically("<=", tc.wait*11/10)))
				}
				if tc.answer != nil {
					Expect(logged).To(HaveLen(len(c.times)), "each failure is told")
					Expect(logged).To(HaveEach(ContainSubstring("probing with a dry run on Machine default/m: away")))
					return
				}
				Expect(logged).To(ConsistOf(ContainSubstring("Detected whether Cluster API propagates taints")), "a change is told once")
			})
		})
	}
}
