// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// BenchmarkVirtualFleet reports what the loop costs in a fleet of BENCH_CLUSTERS Clusters, each with a MachinePool of BENCH_NODES Nodes, in
// virtual time. Requests are those of one Node after the other: none share a live read. CPU times are the process's, also of the fake API
// servers, of the queue and of the garbage collector. Memory is what the loop remembers: the fake API servers and the queue are not in it.
func BenchmarkVirtualFleet(b *testing.B) {
	clusters, _ := strconv.Atoi(os.Getenv("BENCH_CLUSTERS"))
	nodes, _ := strconv.Atoi(os.Getenv("BENCH_NODES"))
	if clusters*nodes == 0 {
		b.Skip("BENCH_CLUSTERS and BENCH_NODES are not set: make bench SCENARIO=virtual")
	}
	for _, part := range []struct {
		name    string
		measure func(v *virtual)
	}{
		{"start", (*virtual).start},
		{"roll-out", func(v *virtual) { v.rollOut(v.NoExecute) }},
		{"roll-out without limits", func(v *virtual) { v.rollOut(inherit.NoExecute{Budgets: true, Clusters: intstr.FromString("100%")}) }},
	} {
		b.Run(fmt.Sprintf("%d×%d/%s", clusters, nodes, part.name), func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			var once sync.Once // -count repeats tests as well
			test := testing.InternalTest{Name: b.Name(), F: func(t *testing.T) {
				once.Do(func() { inUse(t, func(t *testing.T) { part.measure(newVirtual(b, t, clusters, nodes)) }) })
			}}
			if !testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{test}) { // only a test has virtual time
				b.FailNow()
			}
		})
	}
}

// virtual is a fleet that counts its requests: live reads, and writes.
type virtual struct {
	*thousand
	b        *testing.B
	nodes    int
	requests map[string]*requests
}

// newVirtual returns a fleet in three waves: a hundredth of the Clusters, the rest of a tenth, all others.
func newVirtual(b *testing.B, t *testing.T, clusters, nodes int) *virtual {
	b.Helper()
	waves := map[int]string{}
	for i := range clusters / 10 {
		waves[i] = map[bool]string{true: "1", false: "2"}[i < clusters/100]
	}
	writes, management, workload := &requests{}, &requests{}, &requests{}
	v := &virtual{newThousand(t, clusters, func(int) int { return nodes }, waves), b, clusters * nodes, map[string]*requests{
		"writes": writes, "reads-management": management, "reads-workload": workload,
	}}
	direct := *v.shelf
	direct.reads = management.count
	v.Recorder, v.Live, v.Chain.Live = &events.FakeRecorder{}, &direct, &direct
	for name, of := range v.servers {
		wrote, evicts := of.wrote, of.evicts
		of.wrote = func(n *corev1.Node) { writes.count(); wrote(n) }
		of.evicts = func(pod *corev1.Pod) error { writes.count(); return evicts(pod) }
		uncached := *of
		uncached.reads = workload.count
		v.workloads.uncached[key(name)] = &uncached
	}
	return v
}

// start reports the costs of a label and a taint that all Nodes get, of a new leader when all Nodes are right, and of a new leader when all
// Nodes wait for a taint that evicts Pods.
func (v *virtual) start() {
	v.declares("top:NoSchedule")
	v.look("write")
	v.report(float64(v.nodes), "/Node")
	for _, of := range v.servers {
		for i := range of.nodes {
			v.Expect(of.nodes[i].Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/top", "value"))
			v.Expect(taint.FormatList(of.nodes[i].Spec.Taints)).To(Equal("top:NoSchedule"))
		}
	}
	written := *v.requests["writes"]
	v.b.ReportMetric(v.look("start"), "B-start/Node")
	v.Expect(*v.requests["writes"]).To(Equal(written), "all Nodes are right")
	v.declares("top:NoSchedule,drain:NoExecute")
	v.b.ReportMetric(v.look("start-waiting"), "B-start-waiting/Node")
}

// look lets a new leader look at all Nodes, reports the CPU time, and returns the memory that the leader has then for each Node.
func (v *virtual) look(what string) (memory float64) {
	v.manager = nil
	v.running()
	lasts := time.Duration(v.nodes) * 50 * time.Microsecond // about as fast as a core
	v.spread(lasts)
	before, begun := liveBytes(), cpu()
	v.run(lasts+time.Millisecond, 0)
	v.b.ReportMetric((cpu()-begun)*1e6/float64(v.nodes), "µs-CPU-"+what+"/Node")
	return (liveBytes() - before) / float64(v.nodes)
}

// rollOut reports the costs of a taint that evicts Pods. Its declaration reaches all Nodes within a minute.
func (v *virtual) rollOut(limits inherit.NoExecute) {
	v.NoExecute = limits
	v.run(time.Minute, 0)
	v.declares("drain:NoExecute")
	v.spread(time.Minute)
	for _, r := range v.requests {
		*r = requests{}
	}
	declared, begun, last, looks := time.Now(), cpu(), int64(0), v.looks
	most := 20 * time.Duration(10+v.nodes/len(v.servers)) * time.Minute // no target
	for v.queue.Len() > 0 && time.Since(declared) < most {
		v.run(time.Minute, 0)
	}
	for _, ended := range v.ended {
		last = max(last, ended.Unix())
	}
	v.Expect(v.ended).To(HaveLen(len(v.servers)), "all Nodes have the taint")
	v.Expect(v.queue.Len()).To(BeZero(), "the roll-out is over")
	v.b.ReportMetric(float64(last-declared.Unix())/60, "min-until-last-Node")
	v.b.ReportMetric(cpu()-begun, "s-CPU")
	v.b.ReportMetric(float64(v.looks-looks)/time.Since(declared).Seconds(), "looks/s")
	v.report(time.Since(declared).Seconds(), "/s")
	for name, r := range v.requests {
		v.b.ReportMetric(float64(r.most), name+"-most/s")
	}
}

// report reports the number of requests as a part of something.
func (v *virtual) report(of float64, unit string) {
	for name, r := range v.requests {
		v.b.ReportMetric(float64(r.all)/of, name+unit)
	}
}

// declares makes every Cluster declare a label and taints.
func (v *virtual) declares(taints string) {
	for _, pool := range v.shelf.pools {
		pool.Spec.Template.Labels = map[string]string{"node.cluster.x-k8s.io/top": "value"}
		pool.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: taints}
	}
}

// spread enqueues all Nodes, one after the other.
func (v *virtual) spread(lasts time.Duration) {
	v.queue, v.next = nil, map[controllers.NodeRequest]time.Time{}
	begin, gap := time.Now(), lasts/time.Duration(v.nodes)
	for _, of := range v.shelf.clusters {
		for i := range v.servers[of.Name].nodes {
			v.enqueue(begin.Add(gap*time.Duration(len(v.next))), of.Name, v.servers[of.Name].nodes[i].Name)
		}
	}
}

// cpu returns the CPU time of the process in seconds.
func cpu() float64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it cannot fail
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// liveBytes returns the size of all live objects in bytes.
func liveBytes() float64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return float64(now.HeapAlloc)
}

// requests counts requests, and the most of them in a second.
type requests struct {
	all, now, most int
	second         int64
}

func (r *requests) count() {
	if second := time.Now().Unix(); second != r.second {
		r.second, r.now = second, 0
	}
	r.all, r.now = r.all+1, r.now+1
	r.most = max(r.most, r.now)
}
