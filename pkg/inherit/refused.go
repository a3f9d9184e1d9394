// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// An API server refuses a Node for one invalid label: its kubelet could never register it, and no one could change it. A Machine's
// own metadata has been validated; a template's may never have been.

// refused says what is wrong with a label or an annotation. The value of an annotation may be anything.
func refused(what, key, value string) []string {
	if what == annotationKey {
		return validation.IsQualifiedName(strings.ToLower(key))
	}
	return slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
}

// invalid returns the keys of labels or annotations that count and that an API server would refuse, sorted.
func invalid(what string, m map[string]string, counts func(key string) bool) []string {
	var wrong []string
	for key, value := range m {
		if counts(key) && !ordinary(what, key, value) && len(refused(what, key, value)) > 0 {
			wrong = append(wrong, key)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// notOfNode returns those keys of labels or annotations that reach a Node and that no Node can carry.
func notOfNode(what string, m map[string]string, reaches func(key string) bool) (sets.Set[string], error) {
	wrong := invalid(what, m, reaches)
	var told taint.Problems
	for _, key := range wrong {
		told.Add(&Problem{
			Entry: Entry{What: what, Name: key, Own: true}, Value: m[key], Reason: "no Node can carry it: " + strings.Join(refused(what, key, m[key]), "; "),
		})
	}
	return sets.New(wrong...), told.Err()
}

// tooLarge returns an error if there are more bytes of annotations than an API server accepts. A record of a label takes more than
// the label itself, so a Machine may have more than its Node has room for.
func tooLarge(current, result NodeState) error {
	if maps.Equal(current.Annotations, result.Annotations) {
		return nil
	}
	return apivalidation.ValidateAnnotationsSize(result.Annotations)
}
