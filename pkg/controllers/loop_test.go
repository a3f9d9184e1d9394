// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// loop is the loop as Setup makes it, with its own API server and a record of its actions. Cluster c is the management cluster until
// connect is called for it.
type loop struct {
	t *testing.T
	*WithT
	controllers.Dependencies
	policy   inherit.Policy
	changed  *broadcast.Broadcaster // gets an event when the policy changes
	registry *prometheus.Registry
	events   *recorder
	// writes records the writes of the loop, live the reads that bypass the cache, and logged the log lines of event handlers of the running
	// loop.
	writes, live, logged *journal
	// server has the stored objects, without the loop's cache.
	server    client.WithWatch
	mapper    *meta.DefaultRESTMapper
	informers *informers
	workloads *workloads
	schemas   *schemas
	manager   *fakeManager
	// admissions makes the loop check the ways to admit Nodes again, and asked records the calls to them.
	admissions chan event.GenericEvent
	asked      *journal
	// stale holds the objects that differ between the cache and the API server, by kind and name.
	stale map[string]client.Object
	// broken is the error of cached reads by kind, and latest the highest resourceVersion.
	broken map[string]error
	latest atomic.Int64
	// refuse and refuseLive are the errors of writes and of live reads.
	refuse, refuseLive error
	// staying is the answer to the eviction of a Pod, by name.
	staying map[string]error
	// evictionTakes is the time until the answer to an eviction.
	evictionTakes time.Duration
}

// newLoop returns a loop whose API server has these objects.
func newLoop(t *testing.T, objects ...client.Object) *loop {
	t.Helper()
	l := &loop{
		t: t, WithT: NewWithT(t), registry: prometheus.NewRegistry(), changed: &broadcast.Broadcaster{},
		stale: map[string]client.Object{}, broken: map[string]error{},
		writes: &journal{}, live: &journal{}, logged: &journal{}, asked: &journal{}, mapper: fakeclient.Mapper(), workloads: newWorkloads(),
		schemas: &schemas{}, admissions: make(chan event.GenericEvent),
	}
	l.server = fakeclient.New(objects...)
	l.informers, l.events = newInformers(l.server.Scheme()), &recorder{scheme: l.server.Scheme()}
	counted, err := metrics.New(l.registry)
	l.Expect(err).NotTo(HaveOccurred())
	cached, live := l.cached(l.writing("", l.server)), l.uncached(l.server)
	l.Dependencies = controllers.Dependencies{
		Client: cached, Live: live, Chain: &owners.Chain{Cache: cached, Live: live, Mapper: l.mapper, Layout: l.schemas.ControlPlane},
		Metrics: counted, Recorder: l.events, SchemaChanges: l.schemas.Subscribe, Workloads: l.workloads, ManagementCluster: key("c"),
		Admission: &workload.Admission{Changes: l.admissions}, ProviderGroups: []string{inherit.InfrastructureGroup, inherit.BootstrapGroup},
		Policy: func() inherit.Policy { return l.policy }, PolicyChanges: l.changed.Subscribe,
	}
	return l
}

// inUse runs a test with a fake clock, long after its objects were created and changed.
func inUse(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)))
		run(t)
	})
}

// see reconciles an object. For a Cluster, it reconciles the control plane.
func (l *loop) see(object client.Object) error {
	l.t.Helper()
	_, err := l.look(object)
	return err
}

// look is like see, and returns the time until the next look.
func (l *loop) look(object client.Object) (again time.Duration, err error) {
	l.t.Helper()
	return l.reconcile(map[string]string{
		"MachineDeployment": "machinedeployment", "MachineSet": "machineset", "MachinePool": "machinepool", "Machine": "machine",
		"Cluster": "controlplane",
	}[l.kindOf(object)], client.ObjectKeyFromObject(object))
}

// seeWorkload reconciles the workload cluster as a whole.
func (l *loop) seeWorkload(cluster client.ObjectKey) error {
	l.t.Helper()
	_, err := l.reconcile("workload", cluster)
	return err
}

func (l *loop) reconcile(controller string, key client.ObjectKey) (again time.Duration, err error) {
	l.t.Helper()
	reconciler, ok := l.running().named(controller).(reconcile.Reconciler)
	l.Expect(ok).To(BeTrue(), "there is no controller %q", controller)
	result, err := reconciler.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: key})
	return result.RequeueAfter, err
}

// lookAt reconciles a Node, and returns the time until the next look.
func (l *loop) lookAt(cluster, name string) (again time.Duration, err error) {
	l.t.Helper()
	controller, ok := l.running().named("node").(reconcile.TypedReconciler[controllers.NodeRequest])
	l.Expect(ok).To(BeTrue())
	result, err := controller.Reconcile(l.t.Context(), controllers.NodeRequest{Cluster: key(cluster), Name: name})
	return result.RequeueAfter, err
}

// seeNode reconciles a Node of Cluster c, and expects that it does not have to wait.
func (l *loop) seeNode(name string) error {
	l.t.Helper()
	again, err := l.lookAt("c", name)
	l.Expect(again).To(BeZero())
	return err
}

// running returns the manager with the controllers of the loop. Until the first call, tests may change the loop's dependencies.
func (l *loop) running() *fakeManager {
	l.t.Helper()
	if l.manager == nil {
		l.manager = &fakeManager{cache: l.informers, client: l.Client}
		l.Expect(controllers.Setup(l.manager, &l.Dependencies)).To(Succeed())
	}
	return l.manager
}

// start runs the controllers, which then react to events.
func (l *loop) start() {
	l.t.Helper()
	var running sync.WaitGroup
	ctx := ctrl.LoggerInto(l.t.Context(), funcr.New(func(_, line string) { l.logged.note(line) }, funcr.Options{}))
	for _, controller := range l.running().controllers {
		running.Go(func() {
			if err := controller.Start(ctx); err != nil {
				l.t.Errorf("a controller stopped: %v", err)
			}
		})
	}
	l.t.Cleanup(running.Wait) // the context is cancelled before the cleanup
}

// eventually polls the running loop for a minute.
func (l *loop) eventually(actual any) AsyncAssertion {
	l.t.Helper()
	return l.Eventually(actual).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond)
}
