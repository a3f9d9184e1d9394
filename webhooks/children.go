// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// object is a pointer to one of the types that children are decoded into.
type object[T any] interface {
	*T
	metav1.Object
}

// children is the webhook for one kind of object that inherits from an owner in Cluster API.
type children[T any, P object[T]] struct {
	Dependencies
	kind     ownerchain.Kind[P]
	prepared prepared
}

// childrenOf returns the webhook for a kind of the table.
func childrenOf[T any, P object[T]](d Dependencies, kind ownerchain.Kind[P]) children[T, P] {
	return children[T, P]{d, kind, newPrepared()}
}

func (h children[T, P]) decide(ctx context.Context, req admission.Request) (answer, error) {
	if req.Kind.Group == clusterv1.GroupVersion.Group && req.Kind.Version != clusterv1.GroupVersion.Version {
		return answer{}, fmt.Errorf("the request is in %s, not in %s: upgrade Heirloom's webhook configuration", req.Kind.Version, clusterv1.GroupVersion)
	}
	object, err := decode[T](req.Object)
	if err != nil {
		return answer{}, err
	}
	return h.recheck(ctx, req, func(ctx context.Context, chain *ownerchain.Chain) (answer, error) {
		return h.against(ctx, req, object, chain)
	})
}

// against decides by what the chain knows.
func (h children[T, P]) against(ctx context.Context, req admission.Request, object P, chain *ownerchain.Chain) (answer, error) {
	decided, err := h.kind.Evaluate(ctx, chain, object, h.Policy())
	if err != nil {
		return answer{}, err
	}
	if decided.Untouched() {
		return untouched(ctx, decided.Reason), nil
	}
	current, err := h.kind.Content(ctx, h.Schemas, object)
	if err != nil {
		return answer{}, err
	}
	return inject(ctx, req, child{
		object: object, current: current, decided: decided, prepared: h.prepared, old: func() (inherit.Object, error) { return h.before(ctx, req) },
	})
}

// before returns what the object had before an update.
func (h children[T, P]) before(ctx context.Context, req admission.Request) (inherit.Object, error) {
	old, err := decode[T](req.OldObject)
	if err != nil {
		return inherit.Object{}, err
	}
	return h.kind.Content(ctx, h.Schemas, old)
}
