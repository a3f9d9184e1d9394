// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Annotations in which cluster-autoscaler reads what a new Node of a MachineDeployment, MachineSet or MachinePool would
// carry, while there is none that it could look at.
const (
	CapacityLabelsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/labels"
	CapacityTaintsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// CapacityAnnotations returns the annotations that rule 14 writes.
func CapacityAnnotations() []string {
	return []string{CapacityLabelsAnnotation, CapacityTaintsAnnotation}
}

// TellsCapacity reports whether an object carries one of these annotations, whoever wrote it.
func TellsCapacity(object Object) bool {
	return slices.ContainsFunc(CapacityAnnotations(), func(name string) bool { return has(object.Top.Annotations, name) })
}

// Capacity is rule 14: what an object whose replicas cluster-autoscaler decides tells it of the Nodes to come. That is what
// rules 11 and 13 would bring to a Node that registers now, once the object itself has inherited; labels and taints of which
// there are none have no annotation. The error lists what had to be left out.
func (p Policy) Capacity(current, inherits Object) (map[string]string, error) {
	if !autoscaled(mergeMaps(current.Top.Annotations, inherits.Top.Annotations)) {
		return nil, nil
	}
	template := overlay(ptr.Deref(current.Template, Content{}), ptr.Deref(inherits.Template, Content{}))
	node, leftOut := p.Node(sourceOf(template.Labels, template.Annotations, p.typed(template.Taints)), NodeState{}, Privileged)
	delete(node.Labels, RecordLabel)
	told := map[string]string{CapacityLabelsAnnotation: formatLabels(node.Labels), CapacityTaintsAnnotation: taint.FormatList(node.Taints)}
	maps.DeleteFunc(told, func(_, value string) bool { return value == "" })
	// An API server would refuse the object.
	if err := apivalidation.ValidateAnnotationsSize(mergeMaps(mergeMaps(current.Top.Annotations, inherits.Top.Annotations), told)); err != nil {
		return nil, errors.Join(leftOut, fmt.Errorf("cluster-autoscaler cannot be told of new Nodes: %w", err))
	}
	return told, leftOut
}

// autoscaled reports whether cluster-autoscaler takes an object with these annotations for a group of Nodes: it reads bounds
// that are not there as 0, and passes over a group that could never have a Node. The lower bound need not be 0, because a
// group has no Nodes to look at before its first one either.
func autoscaled(annotations map[string]string) bool {
	least, leastErr := bound(annotations, clusterv1.AutoscalerMinSizeAnnotation)
	most, mostErr := bound(annotations, clusterv1.AutoscalerMaxSizeAnnotation)
	return leastErr == nil && mostErr == nil && 0 <= least && least <= most && most > 0
}

func bound(annotations map[string]string, name string) (int, error) {
	value, ok := annotations[name]
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(value)
}

// formatLabels writes labels as cluster-autoscaler reads them, "<key>=<value>" joined with commas, sorted.
func formatLabels(labels map[string]string) string {
	formatted := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		formatted = append(formatted, key+"="+labels[key])
	}
	return strings.Join(formatted, ",")
}

// OfMachineDeployments reports whether a MachineSet is one of a MachineDeployment, if only by its label, as after a restore
// without owner references. It tells cluster-autoscaler nothing by itself: its MachineDeployment does, whose annotations it
// inherits (rule 5).
func OfMachineDeployments(ms *capi.MachineSet) bool {
	return has(ms.Labels, clusterv1.MachineDeploymentNameLabel) || slices.ContainsFunc(ms.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "MachineDeployment"
	})
}
