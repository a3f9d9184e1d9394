// SPDX-License-Identifier: Apache-2.0

// Package metrics declares every metric that Heirloom exports in addition to the metrics of controller-runtime and of Cluster API's
// ClusterCache, each once. docs/monitoring.md lists them all.
package metrics

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// Metrics has the metrics of Heirloom. Create it with New.
type Metrics struct {
	registerer prometheus.Registerer

	admissions, rejections, lookups, keys, drift, writes *prometheus.CounterVec
	unprotected, skipped, workloads, pending, modes      *prometheus.GaugeVec
	noExecute, halted                                    *prometheus.GaugeVec
	gatesClosed, gatesLate, gatesSince                   *prometheus.GaugeVec

	forged  prometheus.Counter
	labeled prometheus.Histogram
}

// New registers the metrics.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	info := gauge("heirloom_build_info", "Build information: always 1, with the program's version as label.", "version")
	info.WithLabelValues(version.String()).Set(1)
	m := &Metrics{
		registerer: registerer,
		admissions: counter("heirloom_admission_requests_total",
			"Admission requests answered, by kind, operation and outcome (injected, unchanged, unmatched, rejected, failed, observed).",
			"kind", "operation", "outcome"),
		rejections: counter("heirloom_admission_requests_rejected_total",
			"Admission requests rejected before decoding, by server (management, workload) and reason "+
				"(too_large, too_many, too_slow, unauthenticated). The webhook's failurePolicy applies to them.", "server", "reason"),
		lookups: counter("heirloom_admission_owner_lookups_total",
			"Owner lookups for admission requests, by result (cached, live, missing, error).", "result"),
		forged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heirloom_workload_admission_rejected_total",
			Help: "Requests rejected by the webhook for workload clusters, because their path matches no known Cluster.",
		}),
		keys: counter("heirloom_inherited_keys_total",
			"Entries that objects gained or lost by inheritance, by writer (admission, resync), kind of the object, "+
				"type of the entry (label, annotation, taint, field) and action (injected, removed).", "writer", "kind", "type", "action"),
		drift: counter("heirloom_drift_repaired_total",
			"Inherited entries that others removed or changed and that Heirloom restored, by writer (admission, resync), "+
				"kind of the object and type of the entry (label, annotation, taint, field).", "writer", "kind", "type"),
		writes: counter("heirloom_resync_writes_total",
			"Writes sent by the resync loop, by kind and result (applied, conflict, error).", "kind", "result"),
		pending: gauge("heirloom_pending_writes",
			"Objects that Heirloom would write now, if it did not only observe their Clusters (--mode=observe, or the label heirloom.dev/mode), "+
				"by Cluster and kind.", "cluster_namespace", "cluster_name", "kind"),
		modes: gauge("heirloom_cluster_mode",
			"Always 1, with the mode of the Cluster as label: enforce, observe or, if the Cluster is not enrolled, none.",
			"cluster_namespace", "cluster_name", "mode"),
		noExecute: gauge("heirloom_no_execute_nodes",
			"Existing Nodes in a roll-out of NoExecute taints, by Cluster and state: waiting (for the turn, or for Pods to leave), held_up (Pods stay, "+
				"for example because of their PodDisruptionBudgets) or done (until the roll-out is over).", "cluster_namespace", "cluster_name", "state"),
		halted: perCluster("heirloom_no_execute_halted",
			"1 for each Cluster whose roll-out of NoExecute taints halts, because Pods are unschedulable, or Nodes not ready, since it began."),
		gatesClosed: perCluster("heirloom_startup_gates_closed", "Closed start-up gates of Nodes, by Cluster."),
		gatesLate:   perCluster("heirloom_startup_gates_late", "Start-up gates that have been closed for longer than they say (within), by Cluster."),
		gatesSince: perCluster("heirloom_startup_gates_closed_since_timestamp_seconds",
			"Registration of the oldest Node with a closed start-up gate, in seconds since the Unix epoch, by Cluster."),
		unprotected: perCluster("heirloom_unprotected_nodes", "Nodes without an Always taint that they should have now, by Cluster."),
		skipped: perCluster("heirloom_skipped_nodes",
			"Nodes that inherit nothing because their Machine, MachinePool or Cluster has the label heirloom.dev/ignore, by Cluster; "+
				"its labels are empty for the management cluster's own Nodes."),
		labeled: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "heirloom_node_labels_delay_seconds",
			Help:    "Seconds from the creation of a Node until it has all inherited labels that its kubelet may not set itself.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800},
		}),
		workloads: gauge("heirloom_workload_clusters",
			"Clusters by the state of the connection to their API server (connected, disconnected).", "state"),
	}
	for _, c := range []prometheus.Collector{
		info, m.admissions, m.rejections, m.lookups, m.forged, m.keys, m.drift, m.writes, m.noExecute, m.halted, m.unprotected, m.skipped, m.labeled, m.workloads,
		m.pending, m.modes, m.gatesClosed, m.gatesLate, m.gatesSince,
	} {
		if err := m.register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) register(c prometheus.Collector) error {
	if err := m.registerer.Register(c); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func perCluster(name, help string) *prometheus.GaugeVec {
	return gauge(name, help, "cluster_namespace", "cluster_name")
}

// Admission counts an answered admission request.
func (m *Metrics) Admission(kind, operation string, outcome Outcome) {
	m.admissions.WithLabelValues(kind, operation, string(outcome)).Inc()
}

// AdmissionRejected returns a function that counts the rejected requests of a server. Each reason has a series from the start, so that the
// first rejection is an increase.
func (m *Metrics) AdmissionRejected(server Server) func(Rejection) {
	for _, why := range []Rejection{TooLarge, TooMany, TooSlow, Unauthenticated} {
		m.rejections.WithLabelValues(string(server), string(why))
	}
	return func(why Rejection) { m.rejections.WithLabelValues(string(server), string(why)).Inc() }
}

// OwnerLookup counts an owner that was looked up to answer an admission request.
func (m *Metrics) OwnerLookup(result LookupResult) {
	m.lookups.WithLabelValues(string(result)).Inc()
}

// WorkloadRejected counts a request to the webhook of workload clusters that was rejected.
func (m *Metrics) WorkloadRejected() {
	m.forged.Inc()
}

// Key counts a label, annotation, taint or field that an object gained or lost.
func (m *Metrics) Key(by Writer, kind, typ string, action Action) {
	m.keys.WithLabelValues(string(by), kind, typ, string(action)).Inc()
}

// Drift counts a label, annotation, taint or field that was repaired.
func (m *Metrics) Drift(by Writer, kind, typ string) {
	m.drift.WithLabelValues(string(by), kind, typ).Inc()
}

// Write counts a write of the resync loop.
func (m *Metrics) Write(kind string, result WriteResult) {
	m.writes.WithLabelValues(kind, string(result)).Inc()
}

// NoExecuteNodes sets the number of Nodes of a Cluster in a state of a roll-out of taints that evict Pods. Without such Nodes, there is no
// series.
func (m *Metrics) NoExecuteNodes(cluster types.NamespacedName, state NoExecuteState, nodes int) {
	setOrDelete(m.noExecute, nodes, cluster.Namespace, cluster.Name, string(state))
}

// NoExecuteHalted sets whether the roll-out of taints that evict Pods halts in a Cluster.
func (m *Metrics) NoExecuteHalted(cluster types.NamespacedName, halted bool) {
	setOrDelete(m.halted, map[bool]int{true: 1}[halted], cluster.Namespace, cluster.Name)
}

// NodesUnprotected sets the number of Nodes of a Cluster that lack a taint. A Cluster without such Nodes has no series.
func (m *Metrics) NodesUnprotected(cluster types.NamespacedName, nodes int) {
	setOrDelete(m.unprotected, nodes, cluster.Namespace, cluster.Name)
}

// NodesSkipped sets the number of Nodes of a Cluster that inherit nothing because of IgnoreLabel. A Cluster without such Nodes has no
// series.
func (m *Metrics) NodesSkipped(cluster types.NamespacedName, nodes int) {
	setOrDelete(m.skipped, nodes, cluster.Namespace, cluster.Name)
}

// StartupGates sets the numbers of closed and of late start-up gates of a Cluster's Nodes, and the time of the registration of the oldest
// Node with a closed gate, in seconds since 1970. A Cluster without such gates has no series.
func (m *Metrics) StartupGates(cluster types.NamespacedName, closed, late int, since int64) {
	setOrDelete(m.gatesClosed, closed, cluster.Namespace, cluster.Name)
	setOrDelete(m.gatesLate, late, cluster.Namespace, cluster.Name)
	if closed == 0 {
		since = 0
	}
	setOrDelete(m.gatesSince, int(since), cluster.Namespace, cluster.Name)
}

// PendingWrites sets the number of objects of a kind in a Cluster whose write is only observed. Without such objects, there is no series.
func (m *Metrics) PendingWrites(cluster types.NamespacedName, kind string, objects int) {
	setOrDelete(m.pending, objects, cluster.Namespace, cluster.Name, kind)
}

// ClusterMode sets the mode of a Cluster; an empty mode says that the Cluster is gone or is left to another Heirloom.
func (m *Metrics) ClusterMode(cluster types.NamespacedName, mode Mode) {
	for _, one := range []Mode{ModeEnforce, ModeObserve, ModeNone} {
		setOrDelete(m.modes, map[Mode]int{mode: 1}[one], cluster.Namespace, cluster.Name, string(one))
	}
}

func setOrDelete(gauge *prometheus.GaugeVec, count int, labels ...string) {
	if count == 0 {
		gauge.DeleteLabelValues(labels...)
		return
	}
	gauge.WithLabelValues(labels...).Set(float64(count))
}

// NodeLabeled records how long a new Node lacked some of its labels. The API server of a workload cluster reports the time of its
// creation: an implausible value would outweigh all other Nodes for good, so it is dropped.
func (m *Metrics) NodeLabeled(after time.Duration) {
	if after >= 0 && after <= 24*time.Hour {
		m.labeled.Observe(after.Seconds())
	}
}

// WorkloadClusters sets the numbers of connected and disconnected Clusters.
func (m *Metrics) WorkloadClusters(connected, disconnected int) {
	m.workloads.WithLabelValues("connected").Set(float64(connected))
	m.workloads.WithLabelValues("disconnected").Set(float64(disconnected))
}

// Certificate adds a metric for the expiration of the serving certificate. It is NaN while the expiration is unknown.
func (m *Metrics) Certificate(expires func() (time.Time, bool)) error {
	return m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "heirloom_webhook_certificate_expiration_timestamp_seconds",
		Help: "Expiration time of the webhook server's certificate in seconds since the Unix epoch; NaN if the certificate cannot be read.",
	}, func() float64 {
		at, known := expires()
		if !known {
			return math.NaN()
		}
		return float64(at.Unix())
	}))
}

// The values of labels.
type (
	// Outcome is the result of an admission request.
	Outcome string
	// Server is one of the webhook servers.
	Server string
	// Rejection is the reason why a request was rejected before it was decoded.
	Rejection string
	// LookupResult is the result of an owner lookup for an admission request.
	LookupResult string
	// Writer is the part of Heirloom that wrote: admission or resync.
	Writer string
	// Action is the change of an inherited entry.
	Action string
	// WriteResult is the result of a write of the resync loop.
	WriteResult string
	// Mode is the mode of a Cluster.
	Mode string
	// NoExecuteState is the state of a Node in a roll-out of taints that evict Pods.
	NoExecuteState string
)

// The values of each type, as docs/monitoring.md describes them.
const (
	Observed  Outcome = "observed"  // the answer would differ if the Cluster were not only observed
	Injected  Outcome = "injected"  // the answer changes the object
	Unchanged Outcome = "unchanged" // the object needs no change
	Unmatched Outcome = "unmatched" // the object has no owner that is known, or is skipped
	Rejected  Outcome = "rejected"  // validation rejected the object
	Failed    Outcome = "failed"    // Heirloom could not compute the answer, and the object passed unchanged

	ManagementServer Server = "management" // answers the management cluster's API servers
	WorkloadServer   Server = "workload"   // answers the API servers of workload clusters

	TooLarge        Rejection = "too_large"       // no API server sends a review of this size
	TooMany         Rejection = "too_many"        // there was no room for it next to other requests
	TooSlow         Rejection = "too_slow"        // its body did not arrive in time
	Unauthenticated Rejection = "unauthenticated" // it came without an accepted client certificate

	Cached       LookupResult = "cached"  // an informer had the owner
	Live         LookupResult = "live"    // the API server had it, and no informer did
	Missing      LookupResult = "missing" // there is no such owner, or its kind is not served
	LookupFailed LookupResult = "error"

	ByAdmission Writer = "admission"
	ByResync    Writer = "resync"

	KeyInjected Action = "injected" // also by a new value
	KeyRemoved  Action = "removed"

	ModeEnforce Mode = "enforce"
	ModeObserve Mode = "observe"
	ModeNone    Mode = "none" // the Cluster is not enrolled

	NoExecuteWaiting NoExecuteState = "waiting" // for its turn, or for its Pods to leave
	NoExecuteHeldUp  NoExecuteState = "held_up" // Pods stay
	NoExecuteDone    NoExecuteState = "done"    // it has its taints, and the roll-out is not over

	Applied  WriteResult = "applied"
	Conflict WriteResult = "conflict"
	Error    WriteResult = "error"
)

// Kind returns the value of the label kind. A forged request can name any kind, so only the kinds of the registered webhooks have their own
// values; the kinds of all providers have one value for each role.
func Kind(group, kind string) string {
	handled := append([]string{"Cluster", "ClusterClass"}, inherit.Kinds...)
	role, isProviders := map[string]string{
		inherit.ControlPlaneGroup: "ControlPlane", inherit.InfrastructureGroup: "InfraMachine", inherit.BootstrapGroup: "BootstrapConfig",
	}[group]
	switch {
	case isProviders:
		return role
	case kind == "Node", group == clusterv1.GroupVersion.Group && slices.Contains(handled, kind):
		return kind
	}
	return "other"
}
