// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// inherited returns the entries of an object with the keys that operators declare.
func inherited(object *unstructured.Unstructured) map[string]bool {
	found := map[string]bool{}
	for _, key := range labels {
		if value, ok := object.GetLabels()[key]; ok {
			found["label "+key+"="+value] = true
		}
	}
	for _, key := range annotations {
		if value, ok := object.GetAnnotations()[key]; ok {
			found["annotation "+key+"="+value] = true
		}
	}
	if value, ok := object.GetLabels()[factLabel]; ok {
		found["label "+factLabel+"="+value] = true
	}
	for _, t := range append(alwaysOf(object), taintsOf(object)...) {
		found["taint "+taint.Format(t)] = true
	}
	return found
}

// alwaysOf returns the Always taints that a Machine or a template declares.
func alwaysOf(by *unstructured.Unstructured) []corev1.Taint {
	list, _ := taint.ParseList(by.GetAnnotations()[taint.AlwaysAnnotation]) // operators write valid lists
	for _, t := range machineTaints(by) {
		if t.Propagation == clusterv1.MachineTaintPropagationAlways {
			list = append(list, taint.ForNode(t))
		}
	}
	return list
}

// decoded returns an object as its type, or an empty object if it cannot be decoded.
func decoded[T any](object *unstructured.Unstructured) *T {
	typed := new(T)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed) != nil {
		return new(T)
	}
	return typed
}

// taintsOf returns the taints of a Node.
func taintsOf(object *unstructured.Unstructured) []corev1.Taint {
	if object.GetKind() != "Node" {
		return nil
	}
	return decoded[corev1.Node](object).Spec.Taints
}

// differences lists the changes of a write to labels, annotations and taints.
func differences(w apiserver.Write) string {
	if w.After == nil || w.Before == nil {
		return ""
	}
	var parts []string
	for name, of := range map[string]func(*unstructured.Unstructured) map[string]string{
		"label": (*unstructured.Unstructured).GetLabels, "annotation": (*unstructured.Unstructured).GetAnnotations, "taint": taintMap,
	} {
		before, after := of(w.Before), of(w.After)
		for key, value := range after {
			if was, ok := before[key]; !ok || was != value {
				parts = append(parts, fmt.Sprintf("+%s %s=%s", name, key, value))
			}
		}
		for key := range before {
			if _, ok := after[key]; !ok {
				parts = append(parts, fmt.Sprintf("-%s %s", name, key))
			}
		}
	}
	if len(parts) == 0 && !reflect.DeepEqual(w.Before.Object["spec"], w.After.Object["spec"]) {
		parts = append(parts, "spec")
	}
	slices.Sort(parts)
	if w.Admission != "" {
		parts = append(parts, "(admission "+w.Admission+")")
	}
	return "  " + strings.Join(parts, " ")
}

// taintMap returns the taints of a Node or a Machine by key and effect.
func taintMap(object *unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, t := range taintsOf(object) {
		all[t.Key+":"+string(t.Effect)] = t.Value
	}
	for _, t := range machineTaints(object) {
		all[t.Key+":"+string(t.Effect)] = fmt.Sprintf("%s (%s)", t.Value, t.Propagation)
	}
	return all
}

// machineTaints returns the taints of a Machine.
func machineTaints(object *unstructured.Unstructured) []clusterv1.MachineTaint {
	if object.GetKind() != "Machine" {
		return nil
	}
	return decoded[clusterv1.Machine](object).Spec.Taints
}

// foreignOf returns the entries of the foreign writer.
func foreignOf(object *unstructured.Unstructured) []string {
	found := []string{object.GetLabels()[foreignKey], object.GetAnnotations()[foreignKey]}
	for _, t := range taintsOf(object) {
		if t.Key == foreignKey {
			found = append(found, t.Value)
		}
	}
	return found
}

// keyOf returns the key of an entry of inherited; for taints, "<key>:<effect>".
func keyOf(entry string) string {
	what, rest, _ := strings.Cut(entry, " ")
	key, value, _ := strings.Cut(rest, "=")
	if what != "taint" {
		return key
	}
	if _, effect, ok := strings.Cut(value, ":"); ok {
		return key + ":" + effect
	}
	return rest
}

// recorded reports whether a Node's tracking annotations list the entry. The record has taints with their values, Cluster API's list has none.
func recorded(node *unstructured.Unstructured, entry string) bool {
	_, whole, _ := strings.Cut(entry, " ")
	return slices.ContainsFunc(inherit.TrackingAnnotations, func(name string) bool {
		list := node.GetAnnotations()[name]
		return strings.Contains(list, keyOf(entry)) || strings.Contains(list, whole)
	})
}

// owns reports whether a field manager, or any for "", owns the label or annotation.
func owns(object *unstructured.Unstructured, manager, key string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(of metav1.ManagedFieldsEntry) bool {
		return (manager == "" || of.Manager == manager) && of.FieldsV1 != nil && strings.Contains(of.FieldsV1.GetRawString(), `"f:`+key+`"`)
	})
}
