// SPDX-License-Identifier: Apache-2.0

package tree

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Forest is the answer: a tree for each Cluster.
type Forest struct {
	metav1.TypeMeta `json:",inline"`

	// Trees begin with the ClusterClass, or with the Cluster if it has none.
	Trees []*Item `json:"trees"`
	// Notes are sentences about the whole answer.
	Notes []string `json:"notes,omitempty"`
	// View says how people see it.
	View View `json:"-"`
}

// View says how a forest looks to people. A program gets every object.
type View struct {
	// ShowAll shows each object, instead of groups of equal ones.
	ShowAll bool
	// Namespaces says that the Clusters are of several namespaces.
	Namespaces bool
}

// Item is one object.
type Item struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// State sums up the rest.
	State State `json:"state"`
	// Enters is what objects below inherit from this one and from nothing above it.
	Enters []Entry `json:"enters,omitempty"`
	// Drift is what the object inherits and does not have as it should.
	Drift []Drift `json:"drift,omitempty"`
	// LeftAlone says why the object stays as it is.
	LeftAlone string `json:"leftAlone,omitempty"`
	// LeftOut is what is declared for the object and cannot be inherited, and why.
	LeftOut []string `json:"leftOut,omitempty"`
	// Error says why nothing is known of what the object inherits, or of what should be below it.
	Error string `json:"error,omitempty"`
	// External says that this is the InfraMachine or BootstrapConfig of a Machine.
	External bool    `json:"external,omitempty"`
	Children []*Item `json:"children,omitempty"`
}

// State says how an object is.
type State string

// The states of an object.
const (
	// Declares is the state of a Cluster and a ClusterClass, which inherit nothing.
	Declares State = "declares"
	// OK means that all that the object inherits is there.
	OK State = "ok"
	// Drifted means that something is not as it should be.
	Drifted State = "drifted"
	// LeftAlone means that Heirloom does not touch the object for now.
	LeftAlone State = "leftAlone"
	// Stranger is a Node that belongs to no Machine.
	Stranger State = "stranger"
	// Unknown means that the object or one of its owners cannot be read.
	Unknown State = "unknown"
)

// Entry is one label, annotation, taint or in-place field that enters the chain.
type Entry struct {
	// Kind is label, annotation, taint or field.
	Kind string `json:"kind"`
	// Key is "<key>:<effect>" for a taint.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Propagation is that of a taint.
	Propagation string `json:"propagation,omitempty"`
	// Fields are the paths in the object that declare it.
	Fields []string `json:"fields,omitempty"`
	// For names the objects of a topology for which a Cluster or a ClusterClass declares it, if there are others.
	For []string `json:"for,omitempty"`
}

// Drift is one entry that is not as it should be.
type Drift struct {
	// Kind is label, annotation, taint or field; "template " is before it in a Machine template.
	Kind string `json:"kind"`
	// Key is "<key>:<effect>" for a taint.
	Key string `json:"key"`
	// Is says what is wrong.
	Is Difference `json:"is"`
	// DeclaredBy is the object and the field that declare it; empty if nothing does any more.
	DeclaredBy string `json:"declaredBy,omitempty"`
}

// Difference says how an entry differs from what the object inherits.
type Difference string

// The differences.
const (
	Missing Difference = "missing"
	Differs Difference = "differs"
	// Stale entries came from an owner that does not declare them any more.
	Stale Difference = "stale"
	// Waiting taints evict Pods, so Nodes in use get them one after the other.
	Waiting Difference = "waiting"
)

// Names implements cli.Named.
func (f *Forest) Names() []string {
	var names []string
	for _, top := range f.Trees {
		top.each(func(i *Item) {
			names = append(names, cli.NameOf(schema.FromAPIVersionAndKind(i.APIVersion, i.Kind).GroupKind(), i.Name))
		})
	}
	return names
}

// each calls a function for an item and all below it.
func (i *Item) each(do func(*Item)) {
	do(i)
	for _, child := range i.Children {
		child.each(do)
	}
}
