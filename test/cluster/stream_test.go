// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	writers         = 4
	writesPerSecond = 40
	// fewest is the minimum number of writes in each step, so that no step is tested without writes.
	fewest = 20
)

// stream writes MachineSets and Machines all the time, and checks each answer for the inherited label.
type stream struct {
	md     *clusterv1.MachineDeployment
	ms     *clusterv1.MachineSet
	limit  *rate.Limiter
	stop   chan struct{}
	ending sync.WaitGroup

	mu     sync.Mutex
	writes int
	// failed has the writes that the API server rejected, bare the writes whose answer lacks the label.
	failed, bare []string
	// step is the number of finished steps. A write that began in an earlier step may lack the label.
	step int
}

const (
	inheritedKey   = "example.com/team"
	inheritedValue = "blue"
)

// newStream starts to write in its own namespace, once the owners exist and the first object has inherited.
func newStream(t *testing.T, namespace string) *stream {
	t.Helper()
	Expect := gomega.NewWithT(t).Expect
	s := &stream{limit: rate.NewLimiter(writesPerSecond, 1), stop: make(chan struct{})}
	Expect(shared.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(gomega.Succeed())
	owner := stage.Cluster(namespace, namespace)
	Expect(shared.Create(t.Context(), owner)).To(gomega.Succeed())
	s.md = stage.MachineDeployment(owner, namespace, stage.Declared{Labels: map[string]string{inheritedKey: inheritedValue}})
	Expect(shared.Create(t.Context(), s.md)).To(gomega.Succeed())
	s.ms = stage.MachineSet(s.md, namespace)
	// After Pods become ready, the Node's proxy needs a moment for the Service.
	gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
		probe := s.ms.DeepCopy()
		g.Expect(shared.Create(t.Context(), probe, client.DryRunAll)).To(gomega.Succeed())
		g.Expect(probe.Spec.Template.Labels).To(gomega.HaveKeyWithValue(inheritedKey, inheritedValue))
	}).WithTimeout(patience).WithPolling(polling).Should(gomega.Succeed())
	Expect(shared.Create(t.Context(), s.ms)).To(gomega.Succeed())
	Expect(s.ms.Spec.Template.Labels).To(gomega.HaveKeyWithValue(inheritedKey, inheritedValue))
	for i := range writers {
		s.ending.Go(func() { s.write(i) })
	}
	t.Cleanup(s.end)
	return s
}

func (s *stream) end() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.ending.Wait()
}

// write creates, changes and deletes objects until the stream ends.
func (s *stream) write(writer int) {
	for i := 0; ; i++ {
		select {
		case <-s.stop:
			return
		default:
		}
		name := fmt.Sprintf("w%d-%d", writer, i)
		var object client.Object = stage.Machine(s.ms, name)
		if i%4 == 0 {
			object = stage.MachineSet(s.md, name)
		}
		s.do("create", object, func(ctx context.Context) error { return shared.Create(ctx, object) })
		// A user removes the label: it is back in the answer.
		taken := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, inheritedKey))
		s.do("update", object, func(ctx context.Context) error { return shared.Patch(ctx, object, taken) })
		s.do("delete", object, func(ctx context.Context) error { return shared.Delete(ctx, object) })
	}
}

// do makes one write, within the rate limit, and checks the answer.
func (s *stream) do(verb string, object client.Object, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.limit.Wait(ctx); err != nil {
		return
	}
	step := s.current()
	had := object.GetLabels()[inheritedKey] == inheritedValue
	started := time.Now()
	err := write(ctx)
	what := fmt.Sprintf("%s %s %T %s after %.2f s", started.Format(time.TimeOnly), verb, object, object.GetName(), time.Since(started).Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, what+": "+err.Error())
	}
	if step != s.step {
		return
	}
	s.writes++
	// The removal of a missing label changes nothing, so the API server does not call Heirloom.
	asked := verb == "create" || verb == "update" && had
	if err == nil && asked && object.GetLabels()[inheritedKey] != inheritedValue {
		s.bare = append(s.bare, what)
	}
}

// during runs a step, lets the stream continue for a while, and expects that no write failed meanwhile and that each answer had the
// inherited label.
func (s *stream) during(r *release, what string, do func()) {
	r.t.Helper()
	r.Expect(s.withoutFailure(r, what, do)).To(gomega.BeEmpty())
}

// withoutFailure runs a step, lets the stream continue for a while, and expects that no write has failed since the last step. It returns
// the writes whose answers lack the inherited label.
func (s *stream) withoutFailure(r *release, what string, do func()) (bare []string) {
	r.t.Helper()
	r.step(what, do)
	r.Eventually(s.count).WithTimeout(patience).WithPolling(polling).Should(gomega.BeNumerically(">=", fewest))
	s.mu.Lock()
	defer s.mu.Unlock()
	r.t.Logf("%s: %d writes, %d failed, %d without what they inherit", what, s.writes, len(s.failed), len(s.bare))
	r.Expect(s.failed).To(gomega.BeEmpty())
	bare = s.bare
	s.step++
	s.writes, s.bare = 0, nil
	return bare
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *stream) current() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step
}
