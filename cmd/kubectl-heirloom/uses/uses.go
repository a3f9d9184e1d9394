// SPDX-License-Identifier: Apache-2.0

// Package uses finds the objects of a workload cluster that depend on a label of its Nodes, so that people see them before the label
// changes: workload and its templates, volumes, and the objects of well-known projects that select Nodes.
package uses

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Dependant is an object that depends on a label of Nodes.
type Dependant struct {
	// Cluster is "<namespace>/<name>" of the Cluster in whose workload cluster the object is.
	Cluster    string `json:"cluster"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Uses are the selectors that mention the label, the worst effect first.
	Uses []Use `json:"uses"`
}

// Use is a selector that mentions a label.
type Use struct {
	Effect Effect `json:"effect"`
	// Expression is the part of the selector about the label, and Field the path of the selector: in the object, or in a Pod of the object.
	Expression string `json:"expression"`
	Field      string `json:"field"`
}

// object is an object of a workload cluster.
type object struct {
	Dependant
	controller *metav1.OwnerReference
	selectors  []Selector
}

// Find returns the objects that each change affects. The error says which kinds could not be read; the others are still reported.
func Find(ctx context.Context, server client.Reader, cluster types.NamespacedName, changes ...Change) ([][]Dependant, error) {
	var objects []object
	var unread []error
	for _, k := range kinds {
		of, err := k.read(ctx, server)
		objects = append(objects, of...)
		if err == nil {
			continue
		}
		if ctx.Err() != nil || !errors.As(err, new(apierrors.APIStatus)) { // the API server does not answer
			unread = append(unread, err)
			break
		}
		unread = append(unread, fmt.Errorf("listing objects of kind %s: %w", k.name, err))
	}
	found := make([][]Dependant, len(changes))
	for i, change := range changes {
		found[i] = dependants(objects, cluster.String(), change)
	}
	return found, errors.Join(unread...)
}

// read lists the objects of a kind, page by page, in the first version that is served.
func (k kind) read(ctx context.Context, server client.Reader) (all []object, err error) {
	for _, version := range k.versions {
		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, k.name+"List"))
			return list, server.List(ctx, list, client.Limit(options.Limit), client.Continue(options.Continue))
		})
		err = pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			u, _ := item.(*unstructured.Unstructured) // an UnstructuredList has no other items
			o := object{controller: metav1.GetControllerOf(u)}
			o.APIVersion, o.Kind, o.Namespace, o.Name = version, k.name, u.GetNamespace(), u.GetName()
			if k.rests == nil || !k.rests(u) {
				o.selectors = k.of(u)
			}
			all = append(all, o)
			return nil
		})
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return all, err
		}
	}
	return nil, nil
}

// dependants returns the objects that a change affects. Objects that a controller made count as the controller.
func dependants(objects []object, cluster string, change Change) []Dependant {
	known, found := map[string]*object{}, map[string]*Dependant{}
	for i := range objects {
		known[objects[i].id()] = &objects[i]
	}
	for i := range objects {
		for _, s := range objects[i].selectors {
			use, affected := s.Use(change)
			if !affected {
				continue
			}
			top := objects[i].top(known)
			if found[top.id()] == nil {
				top.Cluster = cluster
				found[top.id()] = &top
			}
			found[top.id()].add(use)
		}
	}
	all := []Dependant{}
	for _, d := range found {
		slices.SortStableFunc(d.Uses, func(a, b Use) int { return cmp.Compare(a.Effect.rank(), b.Effect.rank()) })
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Dependant) int {
		return cmp.Or(cmp.Compare(a.Uses[0].Effect.rank(), b.Uses[0].Effect.rank()), cmp.Compare(a.id(), b.id()))
	})
	return all
}

// top returns the object that stands for an object: the topmost of its known controllers, or the unknown controller of a Pod, a ReplicaSet or
// a Job. A Node is no controller: its kubelet reports static Pods.
func (o *object) top(known map[string]*object) Dependant {
	for range known { // ends, even if objects control each other
		ref := o.controller
		if ref == nil || ref.Kind == "Node" {
			break
		}
		above := Dependant{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: o.Namespace, Name: ref.Name}
		if known[above.id()] != nil {
			o = known[above.id()]
			continue
		}
		valid := len(validation.IsDNS1123Subdomain(ref.Name))+len(validation.IsDNS1035Label(strings.ToLower(ref.Kind))) == 0 // anyone may write it
		if valid && slices.Contains([]string{"Pod", "ReplicaSet", "Job"}, o.Kind) {
			return above
		}
		break
	}
	return o.Dependant
}

// add adds a use, unless another selector of the object says the same: the selectors of a template come before the same of its Pods.
func (d *Dependant) add(use Use) {
	if !slices.ContainsFunc(d.Uses, func(u Use) bool { return u.Effect == use.Effect && u.Expression == use.Expression }) {
		d.Uses = append(d.Uses, use)
	}
}

func (d *Dependant) id() string {
	return strings.Join([]string{d.groupKind().String(), d.Namespace, d.Name}, "/")
}

func (d *Dependant) groupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(d.APIVersion, d.Kind).GroupKind()
}

// String describes the dependant in a line.
func (d *Dependant) String() string {
	name := d.Kind + "/" + d.Name
	if d.Namespace != "" {
		name += " in namespace " + d.Namespace
	}
	line := fmt.Sprintf("%s %s %s", name, d.Uses[0].Effect, d.Uses[0].Expression)
	return cli.Escape(strings.Join(strings.Fields(line), " ")) // tenants choose the expression
}

func (e Effect) rank() int {
	return slices.Index([]Effect{Requires, Forbids, Unknown, Alternative, Prefers}, e)
}
