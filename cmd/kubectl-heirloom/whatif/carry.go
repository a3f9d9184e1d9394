// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// write is the write of one object.
type write struct {
	*evaluation
	chain   *owners.Chain
	cluster types.NamespacedName
	gvk     schema.GroupVersionKind
	set     string
	// into is the object, if it is in the files.
	into *Object
}

// carry works out what would be written into an object, and puts the result into the snapshot.
func carry[P client.Object](ctx context.Context, w write, kind owners.Kind, object P) error {
	object.GetObjectKind().SetGroupVersionKind(w.gvk)
	what := inherit.Ref{Kind: w.gvk.Kind, Object: object}
	decided, err := kind.Evaluate(ctx, w.chain, object, w.policy)
	if err != nil {
		w.note("%s is not shown, because its owners cannot be read: %s", what, cli.OneLine(err))
		return nil
	}
	if decided.Untouched() {
		return nil
	}
	current, err := kind.Content(ctx, w.chain, object)
	if err != nil {
		return fmt.Errorf("reading the schema of %s: %w", what, err)
	}
	plan, err := managedfields.New(object, current, decided.Decision, nil)
	if err != nil {
		return fmt.Errorf("working out what %s inherits: %w", what, err)
	}
	sources := decided.Sources(ctx)
	if problems := errors.Join(decided.Problems(), plan.LeftOut()); problems != nil {
		w.leftOut(what.String(), sources.Located(problems))
	}
	if !plan.Needed() {
		return nil
	}
	return w.put(ctx, plan, sources, client.ObjectKeyFromObject(object))
}

// put carries out a plan in the snapshot.
func (w write) put(ctx context.Context, plan *managedfields.Plan, sources inherit.Sources, key client.ObjectKey) error {
	o := w.into
	if o == nil {
		stored, err := w.raw(ctx, w.gvk, key)
		if err != nil || stored == nil {
			return err
		}
		o = newObject(stored, w.cluster)
		o.Set = w.set
		w.all = append(w.all, o)
	}
	after, err := carryOut(plan, o.Merged)
	if err != nil {
		return err
	}
	o.Changes = append(o.Changes, inherited(plan, sources)...)
	o.Merged = after
	w.from.Put(after)
	return nil
}

// raw returns an object as it is stored; nil if it is gone.
func (e *evaluation) raw(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	of := group{gvk, key.Namespace}
	if _, known := e.stored[of]; !known {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := e.from.Live().List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
			return nil, fmt.Errorf("listing the %s objects of namespace %s: %w", gvk.Kind, key.Namespace, err)
		}
		e.stored[of] = map[client.ObjectKey]*unstructured.Unstructured{}
		for i := range list.Items {
			e.stored[of][client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
		}
	}
	return e.stored[of][key], nil
}
