// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/lockup"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// loop is the loop as Setup makes it, with an API server to itself and a record of what it does.
type loop struct {
	t *testing.T
	*WithT
	controllers.Dependencies
	policy   inherit.Policy
	changed  *broadcast.Broadcaster // says that the policy has changed
	registry *prometheus.Registry
	events   *recorder
	writes   *journal
	// logged is what the event handlers of the running loop log.
	logged *journal
	// live are the reads that no cache answered.
	live *journal
	// server is what is stored, without the loop's cache in front of it.
	server    client.WithWatch
	mapper    *meta.DefaultRESTMapper
	informers *informers
	workloads *workloads
	// admissions says that the ways to admit Nodes are to be looked at again, and asked is what they were asked for.
	admissions chan event.GenericEvent
	asked      *journal
	// again is when the loop wants to look at the last workload cluster again.
	again   time.Duration
	schemas *schemas
	manager *fakeManager
	// stale are objects that the cache has in another version than the API server, by kind and name; nil: not at all.
	stale map[string]client.Object
	// own is the Cluster of the management cluster itself: c, unless a test says otherwise.
	own atomic.Pointer[client.ObjectKey]
	// broken are what the cache cannot read.
	broken faults
	// latest is the latest version of an object.
	latest atomic.Int64
	// refuse and refuseLive are what the API server answers to writes, and to reads that no cache answers.
	refuse, refuseLive error
}

// newLoop returns a loop whose API server has these objects.
func newLoop(t *testing.T, objects ...client.Object) *loop {
	t.Helper()
	l := &loop{
		t: t, WithT: NewWithT(t), registry: prometheus.NewRegistry(), changed: &broadcast.Broadcaster{},
		writes: &journal{}, live: &journal{}, logged: &journal{}, stale: map[string]client.Object{}, mapper: newMapper(), workloads: newWorkloads(),
		admissions: make(chan event.GenericEvent), asked: &journal{},
	}
	scheme := newScheme(t)
	l.informers, l.events = newInformers(scheme), &recorder{scheme: scheme}
	l.server = l.newServer(scheme, objects)
	counted, err := metrics.New(l.registry)
	l.Expect(err).NotTo(HaveOccurred())
	cached := interceptor.NewClient(l.server, interceptor.Funcs{Get: l.getCached, List: l.listCached, Apply: l.apply, Patch: l.patch})
	l.schemas = &schemas{}
	l.own.Store(ptr.To(key("c")))
	l.Dependencies = controllers.Dependencies{
		Client: cached, Live: interceptor.NewClient(l.server, interceptor.Funcs{Get: l.getLive}),
		Chain:   &owners.Chain{Reader: cached, Mapper: l.mapper, ManagementCluster: func() types.NamespacedName { return *l.own.Load() }, Layout: l.schemas.ControlPlane},
		Metrics: counted, Recorder: l.events, Schemas: l.schemas, Workloads: l.workloads, Providers: l.informers, Admission: &workload.Admission{},
		ProviderGroups: []string{inherit.InfrastructureGroup, inherit.BootstrapGroup},
		Policy:         func() inherit.Policy { return l.policy }, PolicyChanges: l.changed.Subscribe,
	}
	return l
}

// see makes the loop look at an object. Of a Cluster, it looks at the control plane.
func (l *loop) see(object client.Object) error {
	l.t.Helper()
	_, err := l.reconcile(object)
	return err
}

// reconcile makes the loop look at an object, or at the control plane of a Cluster.
func (l *loop) reconcile(object client.Object) (ctrl.Result, error) {
	l.t.Helper()
	return l.controller(map[string]string{
		"MachineDeployment": "machinedeployment", "MachineSet": "machineset", "MachinePool": "machinepool", "Machine": "machine",
		"Cluster": "controlplane",
	}[l.kindOf(object).Kind]).Reconcile(l.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
}

// seeWorkload makes the loop look at the workload cluster as a whole, and notes when it wants to do so again.
func (l *loop) seeWorkload(cluster client.ObjectKey) error {
	l.t.Helper()
	result, err := l.controller("workload").Reconcile(l.t.Context(), ctrl.Request{NamespacedName: cluster})
	l.again = result.RequeueAfter
	return err
}

// seeNode makes the loop look at a Node; see NodeRequest.
func (l *loop) seeNode(cluster client.ObjectKey, name string) (ctrl.Result, error) {
	l.t.Helper()
	controller, ok := l.running().named("node").(reconcile.TypedReconciler[controllers.NodeRequest])
	l.Expect(ok).To(BeTrue())
	return controller.Reconcile(l.t.Context(), controllers.NodeRequest{Cluster: cluster, Name: name})
}

func (l *loop) controller(name string) reconcile.Reconciler {
	l.t.Helper()
	controller, ok := l.running().named(name).(reconcile.Reconciler)
	l.Expect(ok).To(BeTrue(), "there is no controller %q", name)
	return controller
}

// running returns the manager that the loop has been added to. Until then its dependencies may be changed.
func (l *loop) running() *fakeManager {
	l.t.Helper()
	if l.manager == nil {
		l.manager = &fakeManager{cache: l.informers, client: l.Client}
		l.Expect(controllers.Setup(l.manager, l.Dependencies)).To(Succeed())
	}
	return l.manager
}

// start runs the controllers, which then do what events make them do.
func (l *loop) start() {
	l.t.Helper()
	var running sync.WaitGroup
	before, err := lockup.Queues()
	l.Expect(err).NotTo(HaveOccurred())
	ctx := ctrl.LoggerInto(l.t.Context(), funcr.New(func(_, line string) { l.logged.note(line) }, funcr.Options{}))
	for _, controller := range l.running().controllers {
		running.Go(func() {
			if err := controller.Start(ctx); err != nil {
				l.t.Errorf("a controller stopped: %v", err)
			}
		})
	}
	l.t.Cleanup(func() { // the context ends before that
		stopped := make(chan struct{})
		go func() { running.Wait(); close(stopped) }()
		select {
		case <-stopped:
			return
		case <-time.After(10 * time.Second):
		}
		// The program ends, whatever has not ended by then. Here, only this one fault may be why.
		l.Eventually(func() (bool, error) {
			select {
			case <-stopped:
				return true, nil
			default:
				lockedUp, err := lockup.Queues()
				return lockedUp > before, err
			}
		}).WithTimeout(10*time.Minute).WithPolling(time.Second).Should(BeTrue(), "a controller does not end")
	})
}

// eventually waits for what the running loop does.
func (l *loop) eventually(actual any) AsyncAssertion {
	l.t.Helper()
	return l.Eventually(actual).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond)
}

// stored reads an object as the API server has it.
func (l *loop) stored(object client.Object) client.Object {
	l.t.Helper()
	l.Expect(l.server.Get(l.t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	return object
}

// change changes an object in the API server, as somebody else would. It gets a later version than all that were written before:
// the fake API server counts the versions of each object by themselves, and a real one those of all.
func (l *loop) change(object client.Object, how func()) {
	l.t.Helper()
	l.stored(object)
	how()
	for before := l.latest.Load(); l.latest.Load() <= before; l.writtenAs(object) {
		l.Expect(l.server.Update(l.t.Context(), object, client.FieldOwner("somebody"))).To(Succeed())
	}
}

// writtenAs notes the version of an object that has been written.
func (l *loop) writtenAs(object metav1.Object) {
	version, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	l.Expect(err).NotTo(HaveOccurred())
	l.latest.Store(max(l.latest.Load(), version))
}

// lag makes the cache keep an object as it is now.
func (l *loop) lag(object client.Object) {
	l.t.Helper()
	kept, ok := l.stored(object).DeepCopyObject().(client.Object)
	l.Expect(ok).To(BeTrue())
	l.stale[l.kindOf(object).Kind+"/"+object.GetName()] = kept
}

func (l *loop) kindOf(object runtime.Object) schema.GroupVersionKind {
	l.t.Helper()
	gvk, err := l.server.GroupVersionKindFor(object)
	l.Expect(err).NotTo(HaveOccurred())
	return gvk
}

// wrote expects these writes since the last look, and no others.
func (l *loop) wrote(writes ...string) {
	l.t.Helper()
	l.Expect(l.writes.take()).To(Equal(writes), "writes")
}

// told expects these Events since the last look, and no others. Of each, the beginning is enough.
func (l *loop) told(events ...string) {
	l.t.Helper()
	told := l.events.take()
	l.Expect(told).To(HaveLen(len(events)), "Events")
	for i, event := range events {
		l.Expect(told[i]).To(HavePrefix(event))
	}
}

// counted expects metrics, as "name{label=value,...} value" without the prefix heirloom_.
func (l *loop) counted(samples ...string) {
	l.t.Helper()
	for _, sample := range samples {
		l.Expect(samplesOf(l.t, l.registry)).To(ContainElement(sample))
	}
}
