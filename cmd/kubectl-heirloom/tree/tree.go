// SPDX-License-Identifier: Apache-2.0

// Package tree shows a Cluster's owner chain: the declarations of each object for the objects below it, and its missing and differing
// entries. It decides nothing: package compare does.
package tree

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Forest is the answer: a tree for each ClusterClass, and for each Cluster without a ClusterClass.
type Forest struct {
	metav1.TypeMeta `json:",inline"`

	Trees []*Item `json:"trees"`
	// Notes are sentences about the whole answer.
	Notes []string `json:"notes,omitempty"`
	// ShowAll shows people each object, instead of groups of equal objects.
	ShowAll bool `json:"-"`
}

// Item is an object of a tree.
type Item struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// State sums up the other fields.
	State State `json:"state"`
	// Declares holds the entries that objects below inherit from this object, and that nothing above it declares.
	Declares []Declared `json:"declares,omitempty"`
	// Entries holds the entries that are missing or differ.
	Entries []compare.Entry `json:"entries,omitempty"`
	// Skipped says why Heirloom skips the object.
	Skipped string `json:"skipped,omitempty"`
	// LeftOut holds the declarations for the object that cannot be inherited, with the reasons.
	LeftOut []string `json:"leftOut,omitempty"`
	// Error says why the object, its owners or its children could not be read.
	Error string `json:"error,omitempty"`
	// External marks the InfraMachine or BootstrapConfig of a Machine.
	External bool    `json:"external,omitempty"`
	Children []*Item `json:"children,omitempty"`
}

// State is the state of an object.
type State string

// The states of an object.
const (
	Declares State = "declares" // a Cluster or a ClusterClass, which inherit nothing
	OK       State = "ok"       // no inherited entry is missing or differs
	Drifted  State = "drifted"  // an entry is missing or differs
	Skipped  State = "skipped"  // Heirloom skips it for now
	Stranger State = "stranger" // a Node without a Machine or MachinePool
	Unknown  State = "unknown"  // the object, an owner or its children cannot be read
)

// New returns the trees of Clusters. A ClusterClass appears once, above all its Clusters.
func New(trees []*compare.Tree) *Forest {
	f := &Forest{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Tree"}, Trees: []*Item{}}
	inherited, classes := heirs{}, map[string]*Item{}
	for _, t := range trees {
		for _, branch := range t.Children {
			inherited.add(branch, branch.Object.GetName())
		}
	}
	for _, t := range trees {
		cluster := inherited.item(t.Object)
		for _, node := range t.Strangers {
			cluster.Children = append(cluster.Children, inherited.item(node))
		}
		if t.NodesErr != nil {
			cluster.State, cluster.Error = Unknown, "its Nodes cannot be read, so the tree ends at the Machines: "+cli.OneLine(t.NodesErr)
		}
		if t.Class == nil {
			f.Trees = append(f.Trees, cluster)
			continue
		}
		class := classes[t.Class.String()]
		if class == nil {
			class = inherited.item(t.Class)
			classes[t.Class.String()] = class
			f.Trees = append(f.Trees, class)
		}
		class.Children = append(class.Children, cluster)
	}
	return f
}

// item returns the item of an object, with the items of all objects below it.
func (h heirs) item(o *compare.Object) *Item {
	i := &Item{
		APIVersion: o.GVK.GroupVersion().String(), Kind: o.Kind, Namespace: o.Object.GetNamespace(), Name: o.Object.GetName(),
		State: stateOf(o), Declares: h.declaredBy(o), Skipped: string(o.WhyUntouched()),
	}
	switch i.State {
	case Unknown:
		i.Error = cli.OneLine(o.Err)
	case OK, Drifted:
		i.Entries = o.Wrong()
		for _, problem := range inherit.Problems(o.Sources.Located(o.Problems)) {
			i.LeftOut = append(i.LeftOut, cli.OneLine(problem))
		}
	}
	for _, child := range o.Children {
		below := h.item(child)
		below.External = o.Kind == "Machine" && child.Node == nil
		i.Children = append(i.Children, below)
	}
	return i
}

func stateOf(o *compare.Object) State {
	switch {
	case o.Err != nil:
		return Unknown
	case o.Node != nil && o.Node.Decided.Outcome == inherit.NoOwner:
		return Stranger
	case o.WhyUntouched() != "":
		return Skipped
	case len(o.Wrong()) > 0:
		return Drifted
	case o.Declares():
		return Declares
	}
	return OK
}

// Has reports whether any object has this state.
func (f *Forest) Has(state State) (found bool) {
	each(f.Trees, func(i *Item) { found = found || i.State == state })
	return found
}

// Names implements cli.Named.
func (f *Forest) Names() (names []string) {
	each(f.Trees, func(i *Item) {
		names = append(names, cli.NameOf(schema.FromAPIVersionAndKind(i.APIVersion, i.Kind).GroupKind(), i.Name))
	})
	return names
}

func each(all []*Item, do func(*Item)) {
	for _, i := range all {
		do(i)
		each(i.Children, do)
	}
}

// Declared is a label, annotation, taint or in-place field that an object declares for others.
type Declared struct {
	Kind compare.Kind `json:"kind"`
	// Key is "<key>:<effect>" for a taint.
	Key         string `json:"key"`
	Value       string `json:"value"`
	Propagation string `json:"propagation,omitempty"`
	// Fields are the paths in the object that declare the entry.
	Fields []string `json:"fields,omitempty"`
	// For names the objects of a topology for which a Cluster or a ClusterClass declares the entry.
	For []string `json:"for,omitempty"`
}

// heirs holds the branches of a tree that inherit an entry, by the object, the field and the key that declare it.
type heirs map[[3]string][]string

// add adds the entries that an object of a branch and the objects below it inherit. It leaves out the annotations for cluster-autoscaler,
// because they consist of entries that Nodes also inherit. A MachinePool inherits the taints of a topology as annotations, so their keys do
// not count.
func (h heirs) add(o *compare.Object, branch string) {
	for _, e := range o.Entries {
		if e.Source == nil || e.Status == compare.Absent || slices.Contains(inherit.CapacityAnnotations, e.Key) {
			continue
		}
		at := [3]string{e.From.Ref.String(), e.From.Field, e.Key}
		if e.Kind == compare.Annotation && strings.HasSuffix(e.From.Field, "taints") {
			at[2] = ""
		}
		h[at] = union(h[at], branch)
	}
	for _, child := range o.Children {
		h.add(child, branch)
	}
}

// declaredBy returns the entries of an object that other objects inherit.
func (h heirs) declaredBy(o *compare.Object) (all []Declared) {
	for _, e := range o.Entries {
		branches := union(h[[3]string{o.String(), e.Field, e.Key}], h[[3]string{o.String(), e.Field, ""}]...)
		if len(branches) == 0 || e.Status == compare.Missing {
			continue
		}
		one := Declared{Kind: compare.Kind(e.Of.What), Key: e.Key, Value: e.Value, Propagation: e.Propagation}
		at := slices.IndexFunc(all, func(d Declared) bool {
			return d.Kind == one.Kind && d.Key == one.Key && d.Value == one.Value && d.Propagation == one.Propagation
		})
		if at < 0 {
			at, all = len(all), append(all, one)
		}
		all[at].Fields = union(all[at].Fields, e.Field)
		if o.Declares() {
			all[at].For = union(all[at].For, branches...)
		}
	}
	return all
}

func union(a []string, b ...string) []string {
	for _, one := range b {
		if !slices.Contains(a, one) {
			a = append(a, one)
		}
	}
	return a
}
