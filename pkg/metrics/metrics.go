// SPDX-License-Identifier: Apache-2.0

// Package metrics declares every metric that Heirloom exports beside those of controller-runtime, each once.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome is what came of an admission request.
type Outcome string

// The outcomes of an admission request.
const (
	// Injected: the answer brings or keeps something that the object inherits.
	Injected Outcome = "injected"
	// Unchanged: the object already is what it should be.
	Unchanged Outcome = "unchanged"
	// Unmatched: the object has no owner that we know, or is left alone.
	Unmatched Outcome = "unmatched"
	// Refused: validation refused the object.
	Refused Outcome = "refused"
	// Failed: we could not compute the answer and let the object pass untouched.
	Failed Outcome = "failed"
)

// Metrics counts what Heirloom does. Create it with New.
type Metrics struct {
	admissions *prometheus.CounterVec
	writes     *prometheus.CounterVec
	waiting    prometheus.Gauge
	denials    prometheus.Counter
}

// New registers the metrics.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heirloom_admission_requests_total",
			Help: "Admission requests answered, by kind, operation and outcome (injected, unchanged, unmatched, refused, failed).",
		}, []string{"kind", "operation", "outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heirloom_resync_writes_total",
			Help: "Writes sent by the resync loop, by kind and result (applied, conflict, error).",
		}, []string{"kind", "result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "heirloom_no_execute_waiting_nodes",
			Help: "Existing Nodes that wait for their turn to get a taint which evicts Pods (--no-execute-rate).",
		}),
	}
	m.denials = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "heirloom_workload_admission_denied_total",
		Help: "Requests to the webhook of workload clusters that were denied: their path proves no Cluster that is known.",
	})
	for _, c := range []prometheus.Collector{m.admissions, m.writes, m.waiting, m.denials} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// Admission counts an answered admission request.
func (m *Metrics) Admission(kind, operation string, outcome Outcome) {
	m.admissions.WithLabelValues(kind, operation, string(outcome)).Inc()
}

// WriteResult is what came of a write of the resync loop.
type WriteResult string

// The results of a write of the resync loop.
const (
	Applied  WriteResult = "applied"
	Conflict WriteResult = "conflict"
	Error    WriteResult = "error"
)

// Write counts a write of the resync loop.
func (m *Metrics) Write(kind string, result WriteResult) {
	m.writes.WithLabelValues(kind, string(result)).Inc()
}

// NoExecuteWaiting sets how many Nodes wait for a taint that evicts Pods.
func (m *Metrics) NoExecuteWaiting(nodes int) {
	m.waiting.Set(float64(nodes))
}

// WorkloadDenied counts a request to the webhook of workload clusters that was denied.
func (m *Metrics) WorkloadDenied() {
	m.denials.Inc()
}
