// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// twice reports taints that are declared in both ways, or in both annotations.
func (l *linter) twice(all []inherit.Declaration) {
	typed, always := map[taint.ID]inherit.Declaration{}, map[taint.ID]inherit.Declaration{}
	for _, d := range slices.Backward(all) { // the uppermost is named
		if l.world.file(d.Ref) == nil {
			continue
		}
		for _, t := range d.Taints {
			typed[taint.MachineID(t)] = d
		}
		for _, t := range annotated(d, taint.AlwaysAnnotation) {
			always[taint.MachineID(t)] = d
		}
	}
	for _, d := range all {
		s := l.world.file(d.Ref)
		if s == nil {
			continue
		}
		for _, name := range []string{taint.AlwaysAnnotation, taint.InitializeAnnotation} {
			for _, t := range annotated(d, name) {
				id, path := taint.MachineID(t), fieldOf(strings.Join(d.Paths.Metadata, ".")+".annotations", name)
				if other, ok := typed[id]; ok {
					l.found(declaredTwice, s, path, "Remove one of the two.",
						"taint %s is also declared typed, in %s: the typed one wins", id, place(other, strings.Join(other.Paths.Taints, ".")))
				} else if other, ok := always[id]; ok && name == taint.InitializeAnnotation {
					l.found(declaredTwice, s, path, "Remove one of the two.", "taint %s is also declared in %s: that one wins", id,
						place(other, fieldOf(strings.Join(other.Paths.Metadata, ".")+".annotations", taint.AlwaysAnnotation)))
				}
			}
		}
	}
}

func place(d inherit.Declaration, path string) string {
	return nameOf(d.Kind, d.Object) + " (" + path + ")"
}

// annotated returns the taints that an annotation declares, as far as it can be read.
func annotated(d inherit.Declaration, name string) []clusterv1.MachineTaint {
	taints, _ := taint.FromAnnotations(map[string]string{name: d.Annotations[name]})
	return taints
}
