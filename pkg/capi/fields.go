// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Field is an in-place field: one of a Machine's spec that Cluster API changes without a rollout (docs/design.md §1).
type Field int

// The in-place fields. Those that are numbers come first.
const (
	NodeDrainTimeout Field = iota
	NodeVolumeDetachTimeout
	NodeDeletionTimeout
	MinReadySeconds
	ReadinessGates
	fields
)

// row is what the program knows of a field. All that it does with fields loops over the rows.
type row struct {
	// path is that in v1beta2, below a Machine's spec.
	path string
	// v1beta1 is the path there, if it differs. The value is a duration such as "1m30s" there, and not a number of seconds.
	v1beta1 string
	// key tells the items of a list apart.
	key string
	// read returns the number that is declared for a Machine, as either version has it.
	read func(MachineFields) (*int32, *metav1.Duration)
	// ofWorkers is the same for a field that only workers have. v1beta1 has those in the spec around a template.
	ofWorkers func(WorkerFields) *int32
}

// table has a row for each field.
func table() [fields]row {
	return [fields]row{
		NodeDrainTimeout: {
			path: "deletion.nodeDrainTimeoutSeconds", v1beta1: "nodeDrainTimeout",
			read: func(m MachineFields) (*int32, *metav1.Duration) {
				return m.Deletion.NodeDrainTimeoutSeconds, m.NodeDrainTimeout
			},
		},
		NodeVolumeDetachTimeout: {
			path: "deletion.nodeVolumeDetachTimeoutSeconds", v1beta1: "nodeVolumeDetachTimeout",
			read: func(m MachineFields) (*int32, *metav1.Duration) {
				return m.Deletion.NodeVolumeDetachTimeoutSeconds, m.NodeVolumeDetachTimeout
			},
		},
		NodeDeletionTimeout: {
			path: "deletion.nodeDeletionTimeoutSeconds", v1beta1: "nodeDeletionTimeout",
			read: func(m MachineFields) (*int32, *metav1.Duration) {
				return m.Deletion.NodeDeletionTimeoutSeconds, m.NodeDeletionTimeout
			},
		},
		MinReadySeconds: {path: "minReadySeconds", ofWorkers: func(w WorkerFields) *int32 { return w.MinReadySeconds }},
		ReadinessGates:  {path: "readinessGates", key: "conditionType"},
	}
}

// MachineFields are the fields of a Machine's spec that inherit.
type MachineFields struct {
	Taints         []clusterv1.MachineTaint         `json:"taints,omitempty"`
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`

	Deletion clusterv1.MachineDeletionSpec `json:"deletion,omitempty"`

	// The same timeouts as v1beta1 has them.
	NodeDrainTimeout        *metav1.Duration `json:"nodeDrainTimeout,omitempty"`
	NodeVolumeDetachTimeout *metav1.Duration `json:"nodeVolumeDetachTimeout,omitempty"`
	NodeDeletionTimeout     *metav1.Duration `json:"nodeDeletionTimeout,omitempty"`
}

// WorkerFields are the fields that only workers have: in a Machine's spec, and in v1beta1 in the spec around a template.
type WorkerFields struct {
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// Seconds are the fields that are numbers, in seconds whatever the version of the API. One that is nil is not declared.
//
// +kubebuilder:object:generate=false
type Seconds [ReadinessGates]*int32

// SecondsOf returns what is declared for a Machine. Of several workers' fields, the first that declare one count.
func SecondsOf(machine MachineFields, workers ...WorkerFields) Seconds {
	var declared Seconds
	rows := table()
	for f := range declared {
		switch row := rows[f]; {
		case row.read != nil:
			declared[f] = either(row.read(machine))
		case row.ofWorkers != nil:
			for _, worker := range workers {
				declared[f] = cmp.Or(declared[f], row.ofWorkers(worker))
			}
		}
	}
	return declared
}

// either returns the one of the two versions' fields that is set. Cluster API converts between them in whole seconds.
func either(seconds *int32, duration *metav1.Duration) *int32 {
	if seconds != nil || duration == nil {
		return seconds
	}
	return ptr.To(int32(duration.Duration / time.Second)) //nolint:gosec // Cluster API's own conversion has the same limit
}

// Or returns the fields, and the other's where they are not declared.
func (s Seconds) Or(other Seconds) Seconds {
	for f := range s {
		s[f] = cmp.Or(s[f], other[f])
	}
	return s
}

// FieldOf returns which field has this name in any version of the API. What is none of them is the type of a readiness
// gate's condition.
func FieldOf(name string) Field {
	for f, row := range table() {
		if name == cmp.Or(row.v1beta1, row.path) || name == row.path[strings.LastIndex(row.path, ".")+1:] {
			return Field(f)
		}
	}
	return ReadinessGates
}

// Name returns what the field is called in v1beta2, without its path.
func (f Field) Name() string {
	path := table()[f].path
	return path[strings.LastIndex(path, ".")+1:]
}

// ListKey returns the key that tells a field's items apart, or "" if it is no list.
func (f Field) ListKey() string {
	return table()[f].key
}

// FieldNames returns what the fields of all Machines are called in v1beta2, and those that only workers have.
func FieldNames() (all, ofWorkers []string) {
	for _, row := range table() {
		if row.ofWorkers == nil {
			all = append(all, row.path)
		} else {
			ofWorkers = append(ofWorkers, row.path)
		}
	}
	return all, ofWorkers
}
