// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
)

// incomplete reports documents that look like objects of Cluster API, but have no kind or no apiVersion.
func (l *linter) incomplete(documents []*manifest.Object) {
	for _, o := range documents {
		missing := map[bool]string{true: "kind", false: "apiVersion"}[o.GetKind() == ""]
		group, _, _ := strings.Cut(o.GetAPIVersion(), "/")
		if cmp.Or(group, clusterv1.GroupVersion.Group) == clusterv1.GroupVersion.Group &&
			(o.GetKind() == "" && o.Object["spec"] != nil || known.Recognizes(clusterv1.GroupVersion.WithKind(o.GetKind()))) {
			l.found(unknownKind, &subject{Object: o}, "", "Add it.", "the document has no %s, so it was not checked", missing)
		}
	}
}

// givenTwice reports objects that a file has twice. Several files may have the same object, as an overlay and its base do.
func (l *linter) givenTwice(subjects []*subject) {
	first := map[string]*subject{}
	for _, s := range subjects {
		id := s.File + " " + s.GroupVersionKind().GroupKind().String() + " " + s.GetNamespace() + "/" + s.GetName()
		switch {
		case s.GetName() == "" || manifest.Placeholder(s.GetName()):
		case first[id] == nil:
			first[id] = s
		default:
			where := ""
			if line := first[id].Line(""); line > 0 {
				where = fmt.Sprintf(", first on line %d", line)
			}
			l.found(duplicateKey, s, "", "Remove one copy.", "the object is there twice%s", where)
		}
	}
}

// unknownFields reports fields that the kind does not have.
func (l *linter) unknownFields(s *subject) {
	for _, err := range s.unknown {
		_, quoted, _ := strings.Cut(err.Error(), `"`)
		field, _, _ := strings.Cut(quoted, `"`)
		if field != "" && !manifest.Placeholder(field) {
			l.found(unknownField, s, field, "Correct or remove it, or use a newer plugin if your Cluster API has it.",
				"field %s is unknown: kubectl refuses it, or the API server drops it", field)
		}
	}
}
