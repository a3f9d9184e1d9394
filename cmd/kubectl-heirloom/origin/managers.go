// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// managers is metadata.managedFields.
type managers []manager

type manager struct {
	name   string
	fields *fieldpath.Set
}

func readManagers(entries []metav1.ManagedFieldsEntry) (managers, error) {
	var all managers
	for _, entry := range entries {
		if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) == 0 {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading metadata.managedFields of manager %q: %w", entry.Manager, err)
		}
		all = append(all, manager{entry.Manager, fields})
	}
	return all, nil
}

// of returns the managers that own the field at path, sorted, each once.
func (m managers) of(path fieldpath.Path) []string {
	var names []string
	for _, one := range m {
		if one.fields.Has(path) {
			names = append(names, one.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
