// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Fields are the in-place fields that an object declares or has. A list that is nil is not declared.
type Fields struct {
	Seconds        capi.Seconds
	ReadinessGates []clusterv1.MachineReadinessGate
}

// fieldsOf returns the fields of a Machine's spec, or of a template's. In v1beta1, fields of workers are around the template.
func fieldsOf(machine capi.MachineFields, workers ...capi.WorkerFields) Fields {
	return Fields{Seconds: capi.SecondsOf(machine, workers...), ReadinessGates: machine.ReadinessGates}
}

// or returns the fields, and the other's where they are not declared.
func (f Fields) or(other Fields) Fields {
	return Fields{Seconds: f.Seconds.Or(other.Seconds), ReadinessGates: instead(f.ReadinessGates, other.ReadinessGates)}
}
