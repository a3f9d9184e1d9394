// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

func (e *evaluation) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...)+".")
}

// leftOut notes what an object cannot inherit. Objects with the same problem share a note.
func (e *evaluation) leftOut(object string, problem error) {
	text := cli.OneLine(problem)
	if e.without[text] == nil {
		e.problems = append(e.problems, text)
	}
	e.without[text] = append(e.without[text], object)
}

// result is the answer: what changes as people see it.
func (e *evaluation) result() (*Result, error) {
	for _, text := range e.problems {
		e.note("Not everything is inherited by %s: %s", some(e.without[text], 1), text)
	}
	r := &Result{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Difference"},
		Objects:  []*Object{}, Taints: e.taints, Notes: append([]string{}, e.notes...),
	}
	for _, o := range e.all {
		if o.Live == nil || !reflect.DeepEqual(shown(o.Live), shown(o.Merged)) {
			r.Objects = append(r.Objects, o)
		}
	}
	if e.evicted.any() {
		r.Pace = e.evicted.pace(e.Settings.Config.NoExecuteRate)
	}
	return r, nil
}

// some names the first few, and how many more there are.
func some(names []string, first int) string {
	if len(names) <= first {
		return enumerate(names)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:first], ", "), len(names)-first)
}
