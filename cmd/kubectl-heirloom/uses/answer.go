// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Answer lists the objects that use a label.
type Answer struct {
	metav1.TypeMeta `json:",inline"`

	Key string `json:"key"`
	// Value is the value in question; nil for any value.
	Value      *string     `json:"value,omitempty"`
	Dependants []Dependant `json:"dependants"`
	// Unread are the Clusters in which kinds could not be read.
	Unread []Unread `json:"unread,omitempty"`
	// Notes are sentences about the whole answer.
	Notes []string `json:"notes,omitempty"`

	clusters int // that were asked
}

// Unread says what could not be read in a Cluster.
type Unread struct {
	Cluster string `json:"cluster"`
	Error   string `json:"error"`
}

// NewAnswer returns an empty answer about KEY or KEY=VALUE.
func NewAnswer(label string) (*Answer, error) {
	key, value, hasValue := strings.Cut(label, "=")
	a := &Answer{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Uses"}, Key: key, Dependants: []Dependant{}}
	if hasValue {
		a.Value = &value
	}
	if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(wrong) > 0 {
		return nil, fmt.Errorf("%q is not KEY or KEY=VALUE of a label: %s", label, wrong[0])
	}
	return a, nil
}

// Change is the removal of the label.
func (a *Answer) Change() Change { return Change{Key: a.Key, Before: a.Value, OfValue: a.Value != nil} }

// Add adds the dependants of a Cluster, and the error of their read.
func (a *Answer) Add(cluster types.NamespacedName, found []Dependant, err error) {
	a.clusters++
	a.Dependants = append(a.Dependants, found...)
	if err != nil {
		a.Unread = append(a.Unread, Unread{cluster.String(), cli.OneLine(err)})
	}
}

// Sentences says for people what the table does not show.
func (a *Answer) Sentences() (all []string) {
	if len(a.Dependants)+len(a.Unread) == 0 {
		label := a.Key
		if a.Value != nil {
			label += "=" + *a.Value
		}
		all = append(all, fmt.Sprintf("No known object in %s uses label %s.", cli.Count(a.clusters, "Cluster"), label))
	}
	for _, unread := range a.Unread {
		all = append(all, unread.Cluster+": not everything could be read: "+unread.Error)
	}
	return all
}

// Names implements cli.Named.
func (a *Answer) Names() (names []string) {
	for i := range a.Dependants {
		names = append(names, cli.NameOf(a.Dependants[i].groupKind(), a.Dependants[i].Name))
	}
	return names
}

// Table implements cli.Result. A wide table has the paths of the selectors.
func (a *Answer) Table(wide bool) *metav1.Table {
	t, columns := &metav1.Table{}, []string{"Cluster", "Namespace", "Object", "Effect", "Expression", "Field"}
	if !wide {
		columns = columns[:5]
	}
	for _, name := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, d := range a.Dependants {
		var expressions, fields []string
		for _, use := range d.Uses {
			text := use.Expression
			if use.Effect != d.Uses[0].Effect {
				text = string(use.Effect) + " " + text
			}
			expressions, fields = append(expressions, text), append(fields, use.Field)
		}
		cells := []any{d.Cluster, d.Namespace, d.Kind + "/" + d.Name, string(d.Uses[0].Effect), strings.Join(expressions, "; "), strings.Join(fields, "; ")}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells[:len(columns)]})
	}
	return t
}
