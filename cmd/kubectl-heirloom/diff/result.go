// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/utils/exec"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
)

// Result is the answer to a Question.
type Result struct {
	metav1.TypeMeta `json:",inline"`
	// Objects are the objects that would change, in the order of the owner chain.
	Objects []*Object `json:"objects"`
	// Taints are the effects of new taints on the Pods of workload clusters.
	Taints []*Consequence `json:"taints,omitempty"`
	// Labels are labels that Nodes lose, or whose values change, with the objects that depend on them.
	Labels []*LabelChange `json:"labels,omitempty"`
	// Pace says how long it takes until the last Node has a taint that evicts its Pods.
	Pace *Pace `json:"pace,omitempty"`
	// Notes are sentences about changes that are unknown or not shown.
	Notes []string `json:"notes,omitempty"`

	// Unread says that Nodes, or objects above Nodes, could not be read.
	Unread bool `json:"-"`
}

// Object is an object that would change.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Cluster is "<namespace>/<name>" of its Cluster. Applied says that the object is in the files, New that it does not exist yet.
	Cluster string `json:"cluster,omitempty"`
	Applied bool   `json:"applied,omitempty"`
	New     bool   `json:"new,omitempty"`
	// Files are the fields that the files and admission change. Changes are the entries that Heirloom changes; if a Node has no changes, only
	// its record of the entries from its Machine changes.
	Files   []string        `json:"files,omitempty"`
	Changes []compare.Entry `json:"changes,omitempty"`

	// Before is the object now, nil if it is New, and After the object after the writes. Merged is the object of a file as the API server would
	// store it. Set names the object whose Machines and Nodes are alike.
	Before *unstructured.Unstructured `json:"-"`
	After  *unstructured.Unstructured `json:"-"`
	Set    string                     `json:"-"`
	Merged *unstructured.Unstructured `json:"-"`
}

// newObject returns an object of the answer; merged has its kind.
func newObject(object metav1.Object, merged runtime.Object) *Object {
	apiVersion, kind := merged.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return &Object{APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), After: shown(merged)}
}

// shown returns an object without the fields that change in every write.
func shown(object runtime.Object) *unstructured.Unstructured {
	content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object) // it comes from an API server
	u := &unstructured.Unstructured{Object: content}
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetGeneration(0)
	u.SetCreationTimestamp(u.GetCreationTimestamp()) // removes null
	return u
}

// byFile lists the changes of the files in an object.
func (o *Object) byFile() (all []string) {
	if o.New {
		return []string{"+ created"}
	}
	before, after, paths := map[string]string{}, map[string]string{}, map[string]string{}
	flatten("", o.Before.Object, before)
	flatten("", o.After.Object, after)
	maps.Copy(paths, before)
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, had := before[path]
		value, has := after[path]
		switch {
		case !had:
			all = append(all, "+ "+path+"="+cli.Flat(value))
		case !has:
			all = append(all, "- "+path+"="+cli.Flat(was))
		case was != value:
			all = append(all, "~ "+path+"="+cli.Flat(value)+" (was "+cli.Flat(was)+")")
		}
	}
	return all
}

// flatten collects the values of an object by their paths.
func flatten(path string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			flatten(strings.TrimPrefix(path+"."+key, "."), below, into)
		}
	case []any:
		for i, below := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), below, into)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}

// Changed describes a change by Heirloom, such as "+ label team=ml".
func Changed(e compare.Entry) string {
	has := compare.Text(e.Kind, e.Key, e.Value, e.Propagation)
	switch {
	case e.Status == compare.Missing:
		return "+ " + has
	case e.Declared == nil: // no owner declares it
		return "- " + has
	}
	return fmt.Sprintf("~ %s (was %s)", compare.Text(e.Kind, e.Key, *e.Declared, e.DeclaredPropagation), strings.TrimSpace(cli.Flat(e.Value)+" "+e.Propagation))
}

// rows returns the changes of an object, each with the place of its declaration.
func (o *Object) rows() (all [][2]string) {
	for _, text := range o.Files {
		all = append(all, [2]string{text, "the files"})
	}
	for _, e := range o.Changes {
		row := [2]string{Changed(e)}
		if e.Source != nil { // an object declares it
			row[1] = e.From.String()
		}
		all = append(all, row)
	}
	if len(all) == 0 && o.Kind == "Node" {
		all = append(all, [2]string{"~ only the record of entries from the Machine"})
	}
	return all
}

// Table implements cli.Result. A wide table has every object, and the fields that declare entries; otherwise, objects of a set that change
// alike share their rows.
func (r *Result) Table(wide bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: cli.Columns("Namespace", "Object", "Change", "Declared by")}
	first := 1
	if wide || slices.ContainsFunc(r.Objects, func(o *Object) bool { return o.namespace() != r.Objects[0].namespace() }) {
		first = 0
	}
	t.ColumnDefinitions = t.ColumnDefinitions[first:]
	for _, g := range grouped(r.Objects, wide) {
		name := g.Kind + "/" + g.Name
		if g.others > 0 {
			name += fmt.Sprintf(" (+%d)", g.others)
		}
		for _, row := range g.rows() {
			change, source := row[0], row[1]
			if !wide {
				source, _, _ = strings.Cut(source, " (")
				source = strings.Replace(source, " "+g.namespace()+"/", "/", 1)
			}
			t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{g.namespace(), name, change, source}[first:]})
		}
	}
	return t
}

// namespace returns the namespace of an object or, for a Node, of its Cluster.
func (o *Object) namespace() string {
	namespace, _, _ := strings.Cut(o.Cluster, "/")
	return cmp.Or(o.Namespace, namespace)
}

// group is an object, with the number of other objects that change in the same way.
type group struct {
	*Object
	others int
}

// grouped returns the objects to show: all objects, or only the first of the objects in a set that change alike.
func grouped(objects []*Object, all bool) (groups []*group) {
	known := map[string]*group{}
	for _, o := range objects {
		key := fmt.Sprint(o.Cluster, o.Set, o.APIVersion, o.Kind, o.rows())
		if g := known[key]; g != nil && !all && !o.Applied && o.Set != "" {
			g.others++
			continue
		}
		known[key] = &group{Object: o}
		groups = append(groups, known[key])
	}
	return groups
}

// Show shows the differences as kubectl diff does. Objects that change alike are shown once, unless all is set.
func (r *Result) Show(streams genericiooptions.IOStreams, all bool) error {
	differ, err := kubectl.NewDiffer("LIVE", "MERGED")
	if err != nil {
		return fmt.Errorf("making directories for the differences: %w", err)
	}
	defer differ.TearDown()
	for i, g := range grouped(r.Objects, all) {
		if g.Before != nil {
			err = differ.From.Print(g.file(i+1), g.Before, kubectl.Printer{})
		}
		if err = errors.Join(err, differ.To.Print(g.file(i+1), g.After, kubectl.Printer{})); err != nil {
			return fmt.Errorf("writing %s/%s: %w", g.Kind, g.Name, err)
		}
	}
	err = differ.Run(&kubectl.DiffProgram{Exec: exec.New(), IOStreams: streams})
	if errors.As(err, new(exec.ExitError)) { // there is a difference
		return nil
	}
	return err
}

// file returns the name of an object's file. The files keep the order of the owner chain.
func (g *group) file(number int) string {
	name := fmt.Sprintf("%04d.%s.%s", number, g.Kind, strings.TrimPrefix(g.Namespace+"."+g.Name, "."))
	if g.Kind == "Node" {
		name += ".of." + strings.ReplaceAll(g.Cluster, "/", ".")
	}
	if g.others > 0 {
		name += ".and-" + strings.ReplaceAll(cli.Count(g.others, "other"), " ", "-") + "-like-it"
	}
	return name
}

// Lines returns the text besides the differences: how many objects would change, the effects of taints, and notes.
func (r *Result) Lines() []string {
	lines := []string{r.summary()}
	for _, c := range r.Labels {
		lines = append(lines, c.lines()...)
	}
	for _, c := range r.Taints {
		lines = append(lines, c.lines()...)
	}
	if r.Pace != nil {
		lines = append(lines, r.Pace.String())
	}
	for _, note := range r.Notes {
		lines = append(lines, "Note: "+note)
	}
	return lines
}

// summary counts the objects by kind, such as "1 MachineDeployment, 3 Machines, 3 Nodes would change.".
func (r *Result) summary() string {
	var kinds, parts []string
	counts := map[string]int{}
	for _, o := range r.Objects {
		if counts[o.Kind]++; counts[o.Kind] == 1 {
			kinds = append(kinds, o.Kind)
		}
	}
	for _, kind := range kinds {
		parts = append(parts, cli.Count(counts[kind], kind))
	}
	nothing := map[bool]string{false: "Nothing", true: "Nothing that could be read"}[r.Unread]
	return cmp.Or(cli.Some(parts, len(parts)), nothing) + " would change."
}
