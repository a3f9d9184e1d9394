// SPDX-License-Identifier: Apache-2.0

package lockup_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/heirloom-dev/heirloom/test/lockup"
)

// A queue is shut down while it hands out its only item: its only worker ends, and the queue sends to this worker. After a fix in
// controller-runtime, this test fails. Then no test may leave a controller behind any more, and this package can be deleted.
func TestQueues(t *testing.T) {
	g := NewWithT(t)
	before, err := lockup.Queues()
	g.Expect(err).NotTo(HaveOccurred())

	var queue priorityqueue.PriorityQueue[string]
	gone := make(chan struct{})
	hook := onHandOut(func() {
		queue.ShutDown()
		<-gone
	})
	queue = priorityqueue.New("queue", func(o *priorityqueue.Opts[string]) { o.MetricProvider = hook })
	go func() {
		defer close(gone)
		queue.Get()
	}()
	queue.Add("item")

	g.Eventually(gone).WithTimeout(time.Minute).Should(BeClosed())
	g.Eventually(lockup.Queues).WithTimeout(time.Minute).Should(Equal(before+1), "controller-runtime has mended its issue 3538: delete this package")
}

// onHandOut provides the metrics of a queue. It is called just before the queue hands out an item.
type onHandOut func()

func (h onHandOut) Inc()            {}
func (h onHandOut) Dec()            { h() } // only the depth is decremented, before the queue hands out an item
func (h onHandOut) Set(float64)     {}
func (h onHandOut) Observe(float64) {}

func (h onHandOut) NewDepthMetric(string) workqueue.GaugeMetric                         { return h }
func (h onHandOut) NewAddsMetric(string) workqueue.CounterMetric                        { return h }
func (h onHandOut) NewLatencyMetric(string) workqueue.HistogramMetric                   { return h }
func (h onHandOut) NewWorkDurationMetric(string) workqueue.HistogramMetric              { return h }
func (h onHandOut) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return h }
func (h onHandOut) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return h
}
func (h onHandOut) NewRetriesMetric(string) workqueue.CounterMetric { return h }
