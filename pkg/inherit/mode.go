// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ModeLabel on a Cluster, or on a ClusterClass for all its Clusters, says whether Heirloom writes there. Any other value counts as Observe.
const ModeLabel = "heirloom.dev/mode"

// Mode says whether decisions are written.
type Mode string

const (
	// Enforce writes decisions.
	Enforce Mode = "enforce"
	// Observe makes the same decisions and writes nothing: metrics and Events report the writes that Enforce would make.
	Observe Mode = "observe"
)

// ModeOf returns the mode for the objects of a Cluster, and whether the Cluster is enrolled. Both arguments may be nil. A label on the
// Cluster takes precedence over its class's label. An operator who lets Heirloom only observe grants no right to write, so no label can ask
// for writes then.
func (p Policy) ModeOf(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) (mode Mode, enrolled bool) {
	var labeled []metav1.Object
	if cluster != nil {
		labeled = append(labeled, cluster)
	}
	if class != nil {
		labeled = append(labeled, class)
	}
	for _, object := range labeled {
		switch value, there := object.GetLabels()[ModeLabel]; {
		case there && Mode(value) == Enforce && p.Mode != Observe:
			return Enforce, true
		case there: // a mistyped label does not ask for writes
			return Observe, true
		}
	}
	return cmp.Or(p.Mode, Enforce), !p.OnlyLabeled
}
