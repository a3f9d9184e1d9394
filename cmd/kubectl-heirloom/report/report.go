// SPDX-License-Identifier: Apache-2.0

// Package report counts, for each pool of a Cluster, the entries that are missing or differ. It is for people who answer for many Clusters,
// for example to allocate costs or to prove that a policy is in force.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
)

// Report is the answer.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Rows []Row `json:"rows"`
	// Required are the keys that every Node should have, and Lacking the Nodes that lack some of them.
	Required []Required `json:"required,omitempty"`
	Lacking  []Lacking  `json:"lacking,omitempty"`
	// Notes are sentences about the whole answer.
	Notes []string `json:"notes,omitempty"`
}

// Pool is a part of a Cluster: a control plane, a MachineDeployment, a MachinePool, or a standalone MachineSet or Machine. Nodes without a
// Machine are of kind Node; an empty Cluster, or a Cluster that cannot be read, is of kind Cluster. Both have no name.
type Pool struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Kind      string `json:"kind"`
	Name      string `json:"pool,omitempty"`
}

// Row counts a pool with all objects below it. If there is an error, it counts the objects that could be read.
type Row struct {
	Pool  `json:",inline"`
	Nodes int `json:"nodes"`
	// Missing and Differs count entries of objects, and Keys names the entries.
	Missing int   `json:"missing"`
	Differs int   `json:"differs"`
	Keys    []Key `json:"keys,omitempty"`
	// Skipped counts objects that Heirloom skips.
	Skipped int `json:"skipped"`
	// Observed counts objects that Heirloom would write if it did not only observe their Cluster.
	Observed int `json:"observed,omitempty"`
	// Waiting counts Nodes that wait for their turn to get a taint, and Unprotected counts Nodes that lack an Always taint of their Machine.
	Waiting     int `json:"waiting"`
	Unprotected int `json:"unprotected"`
	// Admission says how the Cluster's Nodes are admitted: policy, webhook, loop (only after they have registered), or unknown.
	Admission string `json:"admission"`
	Error     string `json:"error,omitempty"`
}

// Key is an entry that is missing or differs in objects of a pool.
type Key struct {
	Kind    compare.Kind   `json:"kind"`
	Key     string         `json:"key"`
	Status  compare.Status `json:"status"`
	Objects int            `json:"objects"`
	// Managers are the field managers that own the entry there, other than Heirloom and Cluster API.
	Managers []string `json:"managers,omitempty"`
}

// Required is a key that every Node should have.
type Required struct {
	Kind compare.Kind `json:"kind"`
	Key  string       `json:"key"`
}

// Lacking is a Node without a required key.
type Lacking struct {
	Pool  `json:",inline"`
	Node  string   `json:"node"`
	Lacks Required `json:"lacks"`
}

// ParseRequired reads values of --require.
func ParseRequired(values []string) (all []Required, err error) {
	for _, value := range values {
		kind, key, _ := strings.Cut(value, "=")
		if !slices.Contains([]string{"label", "annotation", "taint"}, kind) || len(validation.IsQualifiedName(key)) > 0 {
			return nil, fmt.Errorf("--require=%q: must be label=KEY, annotation=KEY or taint=KEY", value)
		}
		all = append(all, Required{compare.Kind(kind), key})
	}
	return all, nil
}

// on reports whether a Node has the key, with any value and effect.
func (r Required) on(node *corev1.Node) (there bool) {
	switch r.Kind {
	case compare.Label:
		_, there = node.Labels[r.Key]
	case compare.Annotation:
		_, there = node.Annotations[r.Key]
	default:
		there = slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == r.Key })
	}
	return there
}

// New reports on Clusters. admission says how the Nodes of each Cluster are admitted.
func New(trees []*compare.Tree, admission map[types.NamespacedName]string, required []Required) *Report {
	r := &Report{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Report"}, Rows: []Row{}, Required: required}
	for _, t := range trees {
		of := types.NamespacedName{Namespace: t.Ref.Object.GetNamespace(), Name: t.Ref.Object.GetName()}
		add := func(kind, name string, objects ...*compare.Object) {
			row := Row{Pool: Pool{of.Namespace, of.Name, kind, name}, Admission: cmp.Or(admission[of], Unknown)}
			if t.NodesErr != nil {
				row.Error = "its Nodes cannot be read: " + cli.OneLine(t.NodesErr)
			}
			for _, object := range objects {
				object.Each(func(o *compare.Object) { r.add(&row, o) })
			}
			r.Rows = append(r.Rows, row)
		}
		for _, pool := range t.Children {
			add(pool.Kind, pool.Object.GetName(), pool)
		}
		if len(t.Strangers) > 0 {
			add("Node", "", t.Strangers...)
		}
		if len(t.Children)+len(t.Strangers) == 0 {
			add("Cluster", "", t.Object)
		}
	}
	return r
}

// add adds an object to the row of its pool.
func (r *Report) add(row *Row, o *compare.Object) {
	if o.Err != nil && row.Error == "" {
		row.Error = cli.OneLine(o.Err)
	}
	waits := 0
	for _, e := range o.Wrong() {
		switch {
		case o.WhyUntouched() != "":
		case e.Waits():
			waits = 1
		default:
			row.wrong(e)
		}
	}
	if o.WhyUntouched() != "" {
		row.Skipped++
	} else if o.Observed() && len(o.Wrong()) > 0 {
		row.Observed++
	}
	if o.Node == nil {
		return
	}
	row.Nodes++
	row.Waiting += waits
	if n := o.Node; n.Decided.Inherits() && len(n.Plan.Unprotected) > 0 {
		row.Unprotected++
	}
	for _, required := range r.Required {
		if !required.on(o.Node.Node) {
			r.Lacking = append(r.Lacking, Lacking{row.Pool, o.Node.Name, required})
		}
	}
}

// wrong counts an entry that is missing or differs.
func (r *Row) wrong(e compare.Entry) {
	if e.Status == compare.Missing {
		r.Missing++
	} else {
		r.Differs++
	}
	at := slices.IndexFunc(r.Keys, func(k Key) bool { return k.Kind == e.Kind && k.Key == e.Key && k.Status == e.Status })
	if at < 0 {
		at, r.Keys = len(r.Keys), append(r.Keys, Key{Kind: e.Kind, Key: e.Key, Status: e.Status})
	}
	r.Keys[at].Objects++
	for _, manager := range e.Others() {
		r.Keys[at].Managers = with(r.Keys[at].Managers, manager)
	}
}

// String describes the entry and its status for people.
func (k Key) String() string {
	text := fmt.Sprintf("%s %s %s on %s", k.Kind, k.Key, k.Status.Phrase(), cli.Count(k.Objects, "object"))
	if len(k.Managers) > 0 {
		text += ", set by " + strings.Join(k.Managers, ", ")
	}
	return text
}

// Unread reports whether any object could not be read.
func (r *Report) Unread() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Error != "" })
}

func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
