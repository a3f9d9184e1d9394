// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Annotations that describe a new Node for cluster-autoscaler, which reads them as long as a node group has no Node.
const (
	CapacityLabelsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/labels"
	CapacityTaintsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// CapacityAnnotations are the annotations that rule 14 writes.
var CapacityAnnotations = []string{CapacityLabelsAnnotation, CapacityTaintsAnnotation} //nolint:gochecknoglobals // nothing changes it

// TellsCapacity reports whether an object has an annotation of CapacityAnnotations, from any manager.
func TellsCapacity(object Object) bool {
	return slices.ContainsFunc(CapacityAnnotations, func(name string) bool { return has(object.Top.Annotations, name) })
}

// Capacity implements rule 14: it returns the annotations about future Nodes for an object that cluster-autoscaler scales. They have the
// labels and taints that rules 11 and 13 would give to a Node that registers now, once the object itself has inherited, and the facts of
// its template.
func (p Policy) Capacity(current, inherits Object, facts ...FactValue) (map[string]string, Drops) {
	annotations := mergeMaps(current.Top.Annotations, inherits.Top.Annotations)
	if !Autoscaled(annotations) {
		return nil, nil
	}
	template := overlay(ptr.Deref(current.Template, Content{}), ptr.Deref(inherits.Template, Content{}))
	if p.ClusterAPITaints == PropagationDisabled {
		template.Taints = nil
	}
	from := sourceOf(template.Labels, template.Annotations, template.Taints).withRole(p.WorkerRole).WithFacts(facts, Node{})
	plan := p.PlanNode(ReadNode(&corev1.Node{}, time.Time{}), from, Turn{})
	node, out := plan.Result, slices.DeleteFunc(plan.LeftOut, func(d Dropped) bool { return d.Detail == "" }) // only problems for users are reported
	delete(node.Labels, RecordLabel)
	told := map[string]string{CapacityLabelsAnnotation: labels.Set(node.Labels).String(), CapacityTaintsAnnotation: taint.FormatList(node.Taints)}
	maps.DeleteFunc(told, func(_, value string) bool { return value == "" })
	if err := apivalidation.ValidateAnnotationsSize(mergeMaps(annotations, told)); err != nil { // an API server would refuse the object
		out.drop(Entry{}, DropInvalid, "", fmt.Sprintf("the annotations with labels and taints of new Nodes for cluster-autoscaler have no room: %v", err))
		return nil, out
	}
	return told, out
}

// Autoscaled reports whether cluster-autoscaler takes an object with these annotations for a node group. It reads a missing bound as 0, and
// ignores a group that could never have a Node.
func Autoscaled(annotations map[string]string) bool {
	bound := func(name string) (int, error) {
		if !has(annotations, name) {
			return 0, nil
		}
		return strconv.Atoi(annotations[name])
	}
	least, leastErr := bound(clusterv1.AutoscalerMinSizeAnnotation)
	most, mostErr := bound(clusterv1.AutoscalerMaxSizeAnnotation)
	return leastErr == nil && mostErr == nil && 0 <= least && least <= most && most > 0
}

// OfMachineDeployments reports whether a MachineSet belongs to a MachineDeployment. The label is enough, because after a restore there may
// be no owner references. The MachineSet then has no data of its own for cluster-autoscaler, but inherits the annotations of its
// MachineDeployment (rule 5).
func OfMachineDeployments(ms *clusterv1.MachineSet) bool {
	return has(ms.Labels, clusterv1.MachineDeploymentNameLabel) || slices.ContainsFunc(ms.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "MachineDeployment"
	})
}
