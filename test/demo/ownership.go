// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// ownedFields returns the fields that a field manager owns by this operation, according to metadata.managedFields.
func ownedFields(object metav1.Object, manager string, operation metav1.ManagedFieldsOperationType) *fieldpath.Set {
	owned := fieldpath.NewSet()
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != manager || entry.Operation != operation || entry.FieldsV1 == nil {
			continue
		}
		set := fieldpath.NewSet()
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err == nil {
			owned = owned.Union(set)
		}
	}
	return owned
}

// notApplied returns a problem for each entry of c, at a place inside the object, that heirloom does not own by apply.
func notApplied(object metav1.Object, c content, place ...any) []string {
	owned := ownedFields(object, "heirloom", metav1.ManagedFieldsOperationApply)
	at := func(rest ...any) fieldpath.Path {
		return fieldpath.MakePathOrDie(append(place[:len(place):len(place)], rest...)...)
	}
	var paths []fieldpath.Path
	for _, item := range c.labels {
		paths = append(paths, at("metadata", "labels", keyOf(item)))
	}
	for _, item := range c.annotations {
		paths = append(paths, at("metadata", "annotations", keyOf(item)))
	}
	for _, item := range c.taints {
		kubectlSyntax, _, _ := strings.Cut(item, " ")
		if t, err := taint.Parse(kubectlSyntax); err == nil {
			paths = append(paths, at("spec", "taints", fieldpath.KeyByFields("effect", string(t.Effect), "key", t.Key)))
		}
	}
	var problems []string
	for _, path := range paths {
		if !owned.Has(path) {
			problems = append(problems, "heirloom does not own "+path.String())
		}
	}
	return problems
}

// keyOf returns the key of an item such as key=value or key=value:effect.
func keyOf(item string) string {
	return item[:strings.IndexAny(item+":", "=:")]
}
