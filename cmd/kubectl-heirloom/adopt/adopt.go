// SPDX-License-Identifier: Apache-2.0

// Package adopt finds the labels and taints that all Nodes of a pool have although nobody declares them, and writes the declarations. It is
// for the move from kubelets' flags, policies and scripts to declarations. read.go reads the bootstrap configurations; the rest is pure.
package adopt

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/diff"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// State says what can be done with an entry.
type State string

const (
	// Adopt means that all Nodes have the entry, and a patch declares it.
	Adopt State = "adopt"
	// NotPropagated means that all Nodes have the entry, and a declaration would not reach them. The message names the missing setting.
	NotPropagated State = "notPropagated"
	// Partial means that not all Nodes of the pool have the entry with the same value.
	Partial State = "partial"
	// DeclaredTwice means that kubelets register with an entry that is already declared.
	DeclaredTwice State = "declaredTwice"
	// OnNoNode means that kubelets register with an entry that no Node has any more.
	OnNoNode State = "onNoNode"
)

// String returns the state for people.
func (s State) String() string {
	return map[State]string{
		Adopt: "adopt", NotPropagated: "not propagated", Partial: "not on all Nodes", DeclaredTwice: "declared twice", OnNoNode: "on no Node",
	}[s]
}

// Adoption is the answer about a Cluster.
type Adoption struct {
	metav1.TypeMeta `json:",inline"`

	Cluster string  `json:"cluster"`
	Pools   []*Pool `json:"pools"`
	// Patches declare the entries: a patch for each object.
	Patches []Patch `json:"patches,omitempty"`
	// Difference is the answer of diff about the patches. It also has writes that are pending anyway.
	Difference *diff.Result `json:"difference,omitempty"`
	// NodeChanges are the changes on Nodes because of the patches.
	NodeChanges []string `json:"nodeChanges,omitempty"`
	// Advice has the next steps and the risks.
	Advice []string `json:"advice,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Pool is a control plane, MachineDeployment, MachinePool, or a standalone MachineSet or Machine.
type Pool struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	// Declares is the object and the field that declare for the pool.
	Declares *compare.Source `json:"declares,omitempty"`
	Entries  []Entry         `json:"entries,omitempty"`
	Error    string          `json:"error,omitempty"`

	Of *compare.Object `json:"-"`
}

// Entry is a label or a taint that Nodes of a pool have although nobody declares it, or with which their kubelets register.
type Entry struct {
	Kind  compare.Kind `json:"kind"`
	Key   string       `json:"key"`
	Value string       `json:"value"`
	Nodes int          `json:"nodes"`
	State State        `json:"state"`
	// SetBy are the field managers that set the entry; the API server tracks all taints of a Node as one field. Empty means unknown.
	SetBy []string `json:"setBy,omitempty"`
	// RegisteredBy are the bootstrap configurations because of which kubelets register with the entry.
	RegisteredBy []RegisteredBy `json:"registeredBy,omitempty"`
	Message      string         `json:"message,omitempty"`

	// Of is the name of the entry in the rules. Named says that the label reaches Nodes only if the Cluster names it.
	Of    inherit.Entry `json:"-"`
	Named bool          `json:"-"`
}

// RegisteredBy is a declaration for kubelets.
type RegisteredBy struct {
	compare.Source `json:",inline"`
	// ClonedFrom is the template of the ClusterClass from which Cluster API made the object.
	ClonedFrom string `json:"clonedFrom,omitempty"`
	Value      string `json:"value"`
}

// New returns the answer about a Cluster, without the difference.
func New(tree *compare.Tree, policy inherit.Policy, objects Objects) (*Adoption, error) {
	a := &Adoption{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Adoption"}, Pools: []*Pool{}, Notes: objects.Notes}
	cluster, _ := tree.Ref.Object.(*clusterv1.Cluster)
	a.Cluster = cluster.Namespace + "/" + cluster.Name
	class := (*clusterv1.ClusterClass)(nil)
	if tree.Class != nil {
		class, _ = tree.Class.Object.(*clusterv1.ClusterClass)
	}
	policy = policy.Of(cluster, class)
	changes := &patcher{stored: objects.Stored, before: map[string]*unstructured.Unstructured{}, after: map[string]*unstructured.Unstructured{}}
	for _, o := range tree.Children {
		p := &Pool{Kind: o.Kind, Name: o.Object.GetName(), Of: o}
		j := judge{Pool: p, policy: policy, registered: objects.Configurations[o]}
		j.look()
		t := targetOf(tree, o, policy)
		p.Declares = t.source()
		for i := range p.Entries {
			if p.Entries[i].State == Adopt {
				changes.declare(t, &p.Entries[i])
			}
		}
		slices.SortStableFunc(p.Entries, func(a, b Entry) int {
			order := []State{Adopt, NotPropagated, DeclaredTwice, OnNoNode, Partial}
			return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
		})
		a.Pools = append(a.Pools, p)
	}
	a.advise()
	var err error
	a.Patches, err = changes.patches()
	return a, err
}

// Undeclared reports whether all Nodes of some pool have an entry that nobody declares.
func (a *Adoption) Undeclared() bool {
	return slices.ContainsFunc(a.Pools, func(p *Pool) bool {
		return slices.ContainsFunc(p.Entries, func(e Entry) bool { return e.State == Adopt || e.State == NotPropagated })
	})
}
