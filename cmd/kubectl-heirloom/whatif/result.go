// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Result is what would be written.
type Result struct {
	metav1.TypeMeta `json:",inline"`
	// Objects are those that would change, in the order of the owner chain.
	Objects []*Object `json:"objects"`
	// Taints are what new taints do to the Pods of workload clusters.
	Taints []*Consequence `json:"taints,omitempty"`
	// Pace says how long it takes until the last Node has a taint that evicts its Pods.
	Pace *Pace `json:"pace,omitempty"`
	// Notes are sentences about what is not known or not shown.
	Notes []string `json:"notes,omitempty"`
}

// Object is one object that would change.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Cluster is "<namespace>/<name>" of the Cluster that the object belongs to.
	Cluster string `json:"cluster,omitempty"`
	// Applied says that the object is in the files.
	Applied bool `json:"applied,omitempty"`
	// New says that the object does not exist yet.
	New     bool     `json:"new,omitempty"`
	Changes []Change `json:"changes"`

	// Live is the object as it is stored, nil if it is New; Merged is what it would become.
	Live   *unstructured.Unstructured `json:"-"`
	Merged *unstructured.Unstructured `json:"-"`
	// Set is the object whose Machines and Nodes are alike.
	Set string `json:"-"`
}

// Change is one thing that changes in an object.
type Change struct {
	// Place is the path of the map or list, such as "metadata.labels"; of a change in a file, that of the field.
	Place string `json:"place"`
	// Key is that of a label or an annotation, "<key>:<effect>" of a taint, or the name of a field.
	Key string `json:"key,omitempty"`
	// Value is what it becomes; it is missing where the entry is removed.
	Value any `json:"value,omitempty"`
	// Removed says that the entry is removed.
	Removed bool `json:"removed,omitempty"`
	// Source is where it is declared, such as "MachineDeployment fleet/md-0 (spec.template.metadata.labels)".
	Source string `json:"source,omitempty"`
}

// fromFiles is the source of what the files change.
const fromFiles = "the files, with what admission adds"

// Differs reports whether anything would change.
func (r *Result) Differs() bool { return len(r.Objects) > 0 }

// Names implements cli.Named.
func (r *Result) Names() []string {
	names := make([]string, 0, len(r.Objects))
	for _, o := range r.Objects {
		names = append(names, cli.NameOf(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind(), o.Name))
	}
	return names
}

// Table implements cli.Result. Of objects of one set that change alike it has one, unless it is wide.
func (r *Result) Table(wide bool) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range []string{"Kind", "Name", "Change", "Declared by"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	list, err := grouped(r.Objects, wide)
	if err != nil { // then none are alike
		list, _ = grouped(r.Objects, true)
	}
	for _, o := range list {
		name := o.key()
		if o.others > 0 {
			name += fmt.Sprintf(" and %d like it", o.others)
		}
		for _, c := range o.Changes {
			t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{o.Kind, name, c.String(), c.Source}})
		}
	}
	return t
}

// String says what changes, such as "+ metadata.labels team=ml".
func (c Change) String() string {
	words := strings.TrimSpace(c.Place + " " + c.Key)
	if c.Removed {
		return "- " + words
	}
	switch value := c.Value.(type) {
	case string:
		if strings.HasSuffix(c.Place, "taints") { // a Node's, as a whole
			return "+ " + c.Place + " " + value
		}
		return "+ " + words + "=" + value
	case clusterv1.MachineTaint:
		return "+ " + c.Place + " " + taint.Format(taint.ForNode(value)) + " (" + string(value.Propagation) + ")"
	case bool, int32, int64, float64:
		return fmt.Sprintf("+ %s=%v", words, value)
	}
	return "+ " + words
}

// Summary counts the objects by kind, such as "1 MachineDeployment, 3 Machines and 3 Nodes would change".
func (r *Result) Summary() string {
	if !r.Differs() {
		return "Nothing would change."
	}
	var kinds []string
	counts := map[string]int{}
	for _, o := range r.Objects {
		if counts[o.Kind] == 0 {
			kinds = append(kinds, o.Kind)
		}
		counts[o.Kind]++
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return cmp.Compare(last(a), last(b)) })
	var parts []string
	for _, kind := range kinds {
		parts = append(parts, many(counts[kind], kind))
	}
	return enumerate(parts) + " would change."
}

// last makes Nodes come last.
func last(kind string) int {
	if kind == "Node" {
		return 1
	}
	return 0
}

// many is n of a kind, in English.
func many(n int, kind string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(kind, "s"), strings.HasSuffix(kind, "x"):
		kind += "es"
	default:
		kind += "s"
	}
	return fmt.Sprintf("%d %s", n, kind)
}

func enumerate(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func (o *Object) key() string {
	return strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// newObject returns an object that is not in the files.
func newObject(live *unstructured.Unstructured, cluster types.NamespacedName) *Object {
	return &Object{
		APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(),
		Cluster: strings.Trim(cluster.String(), "/"), Live: live, Merged: live,
	}
}

// id names an object, in whatever version it is.
type id struct {
	schema.GroupKind
	client.ObjectKey
}

func idOf(object *unstructured.Unstructured) id {
	return id{object.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
}

// Lines are what there is to say besides the differences: how many objects would change, what taints do, and notes.
func (r *Result) Lines() []string {
	lines := []string{r.Summary()}
	for _, c := range r.Taints {
		lines = append(lines, c.Lines()...)
	}
	if r.Pace != nil {
		lines = append(lines, r.Pace.String())
	}
	for _, note := range r.Notes {
		lines = append(lines, "Note: "+note)
	}
	return lines
}
