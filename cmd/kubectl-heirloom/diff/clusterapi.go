// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
)

// remember records the labels and annotations that the objects of a Cluster inherit before the files are applied. Cluster API owns the entries
// that it propagates itself, and removes them once their owner no longer declares them.
func (e *evaluation) remember(ctx context.Context, cluster types.NamespacedName) {
	stored := e.World
	stored.Nodes = nil                                               // a Node's annotations record its entries
	_, _ = stored.Tree(ctx, cluster, func(o *compare.Object) error { // the walk with the files returns the error
		for i := range o.Entries {
			if entry := &o.Entries[i]; entry.Status == compare.Declared {
				e.inherited[inheritedBy(o, entry)] = true
			}
		}
		return nil
	})
}

func inheritedBy(o *compare.Object, entry *compare.Entry) string {
	return idOf(o.GVK, o.Object) + "/" + entry.Field + "/" + entry.Key
}

// byClusterAPI returns the labels and annotations of an object that Cluster API removes, although Heirloom does not: the object inherited them,
// nothing declares them any more, and nobody but Cluster API owns them.
func (e *evaluation) byClusterAPI(o *compare.Object) (removed []compare.Entry) {
	for _, entry := range o.Entries {
		mapped := slices.Contains([]compare.Kind{compare.Label, compare.Annotation, compare.TemplateLabel, compare.TemplateAnnotation}, entry.Kind)
		owned := e.inherited[inheritedBy(o, &entry)] && len(entry.Managers) > 0 && len(entry.Others()) == 0
		if mapped && entry.Status == compare.Local && (owned || lost(o, &entry)) {
			entry.Status = compare.Differs
			removed = append(removed, entry)
		}
	}
	return removed
}

// lost reports whether a Node has a label, by Cluster API's list, from a Machine that loses the label.
func lost(o *compare.Object, entry *compare.Entry) bool {
	if o.Node == nil || o.Parent == nil || o.Parent.Kind != "Machine" || entry.Kind != compare.Label {
		return false
	}
	_, had := o.Parent.Object.GetLabels()[entry.Key]
	_, stays := o.Node.Would.Source.Labels[entry.Key]
	return had && !stays && slices.Contains(entry.Records, clusterv1.LabelsFromMachineAnnotation)
}

// without returns an object without entries.
func without(object *unstructured.Unstructured, removed []compare.Entry) *unstructured.Unstructured {
	object = object.DeepCopy()
	for _, entry := range removed {
		unstructured.RemoveNestedField(object.Object, append(strings.Split(entry.Field, "."), entry.Key)...)
	}
	return object
}
