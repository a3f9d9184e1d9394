// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// object is a pointer to one of the types of Cluster API that inherit.
type object[T any] interface {
	*T
	client.Object
}

// children applies to the objects of one kind what they inherit.
type children[T any, P object[T]] struct {
	Dependencies
	kind ownerchain.Kind[P]
	// before runs even for an object that inherits nothing for now, and returns when to look again. It may be nil.
	before func(context.Context, P) (time.Duration, error)
	// also runs after the apply, and returns when to look again. It may be nil.
	also func(context.Context, P) (time.Duration, error)
}

// Reconcile implements reconcile.Reconciler.
func (r children[T, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	child := P(new(T))
	if err := r.Client.Get(ctx, req.NamespacedName, child); err != nil {
		return ctrl.Result{}, gone(err, r.kind.Name)
	}
	if cluster := child.GetLabels()[clusterv1.ClusterNameLabel]; cluster != "" {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(req.Namespace, cluster)))
	}
	var first time.Duration
	if r.before != nil {
		var err error
		if first, err = r.before(ctx, child); err != nil {
			return ctrl.Result{}, err
		}
	}
	again, err := applyTo(ctx, r.Dependencies, r.kind, child, child)
	again = sooner(first, again)
	if r.also != nil {
		alsoAgain, alsoErr := r.also(ctx, child)
		again, err = sooner(again, alsoAgain), errors.Join(err, alsoErr)
	}
	if err != nil {
		return r.unlessNotListed(ctx, req.Namespace, child.GetLabels()[clusterv1.ClusterNameLabel], err, again)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// sooner returns the shorter time to wait; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// gone ignores the error of an object that no longer exists.
func gone(err error, kind string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("getting the %s: %w", kind, err)
}

// childrenOf returns the reconciler for a kind of the table.
func childrenOf[T any, P object[T]](d Dependencies, kind ownerchain.Kind[P]) children[T, P] {
	return children[T, P]{Dependencies: d, kind: kind}
}
