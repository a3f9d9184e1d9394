// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// taints rejects reserved and invalid taints, typed or annotated, on every kind that can declare them (docs/design.md §3).
//
// It is registered to fail open as well: a scale-up must not wait for Heirloom. This is safe, because no rule propagates a taint that it
// would have rejected.
//
// The mode and the enrollment of the Cluster count, as for the rules: in a Cluster that is only observed, it warns.
//
// It also warns about mistakes in Heirloom's own keys, everywhere: a mistyped key may be why a Cluster is not enrolled.
type taints struct{ Dependencies }

func (h taints) decide(ctx context.Context, req admission.Request) (answer, error) {
	object, old := &taint.Carrier{}, (*taint.Carrier)(nil)
	if err := decode(req.Object, object); err != nil {
		return answer{}, err
	}
	if req.Operation == admissionv1.Update {
		old = &taint.Carrier{}
		if err := decode(req.OldObject, old); err != nil {
			return answer{}, err
		}
	}
	decided, err := h.judge(ctx, req, object, old)
	if object.IsManaged() && slices.Contains(req.UserInfo.Groups, serviceaccount.AllServiceAccountsGroup) {
		return decided, err // a controller copies keys, and the object from which it copies them has been judged
	}
	decided.warnings = append(warnings(mistakes(req.Kind.Kind, object, old), func(m inherit.Mistake) string { return "heirloom: " + m.String() }), decided.warnings...)
	return decided, err
}

// mistakes returns the mistakes in Heirloom's own keys that a write adds or changes. old is nil for a create.
func mistakes(kind string, object, old *taint.Carrier) (all []inherit.Mistake) {
	before := map[string]taint.Place{}
	if old != nil {
		for _, place := range old.Places(kind) {
			before[place.Name] = place
		}
	}
	for _, place := range object.Places(kind) {
		all = append(all, inherit.Mistakes(place, before[place.Name])...)
	}
	return all
}

// judge refuses taints, or warns about them, and warns about keys that a Cluster or a ClusterClass names without effect.
func (h taints) judge(ctx context.Context, req admission.Request, object, old *taint.Carrier) (answer, error) {
	errs := taint.ValidateCarrier(object, old, req.Kind.Group == inherit.ControlPlaneGroup)
	var without []string // entries of sync.heirloom.dev annotations without effect; the others have effect
	if inherit.Names(req.Kind.Kind) {
		without = h.Policy().NamingProblems(object.Metadata.Annotations)
	}
	if len(errs) == 0 && len(without) == 0 {
		return answer{outcome: metrics.Unchanged}, nil
	}
	observed, enrolled, err := h.observes(ctx, req, object)
	switch {
	case err != nil:
		return answer{}, err
	case !enrolled:
		return untouched(ctx, inherit.ClusterIsNotEnrolled), nil
	case len(errs) == 0:
		return answer{outcome: metrics.Unchanged, warnings: warnings(without, func(problem string) string { return "heirloom: " + problem })}, nil
	case observed:
		return answer{outcome: metrics.Observed, warnings: []string{
			"heirloom: would be refused if Heirloom did not only observe here: " + oneLine(errs.ToAggregate()),
		}}, nil
	}
	// The response of an API server to an invalid object, with each error and its field path.
	status := apierrors.NewInvalid(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, req.Name, errs).Status()
	refusal := admission.Errored(http.StatusUnprocessableEntity, errs.ToAggregate())
	refusal.Result = &status
	refused := answer{outcome: metrics.Rejected, refusal: &refusal}
	if len(errs) == taint.MostProblems {
		refused.warnings = []string{"heirloom: this list of errors may be incomplete"}
	}
	return refused, nil
}

// observes reports whether Heirloom only observes the object's Cluster, and whether the Cluster is enrolled. The mode of a Cluster and of a
// ClusterClass is in the request; a template and an object of an unknown Cluster have the mode of the installation.
func (h taints) observes(ctx context.Context, req admission.Request, object *taint.Carrier) (observed, enrolled bool, err error) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Labels: object.Metadata.Labels}} // of a ClusterClass, only the label counts
	switch req.Kind.Kind {
	case "ClusterClass":
	case "Cluster":
		err = decode(req.Object, cluster)
	default:
		name := cmp.Or(object.Spec.ClusterName, object.Metadata.Labels[clusterv1.ClusterNameLabel])
		cluster, err = h.Chain.Cluster(ctx, req.Namespace, name)
	}
	if err != nil {
		return false, false, err
	}
	_, observed, enrolled, _ = h.Chain.Observes(ctx, cluster, h.Policy()) // a ClusterClass that cannot be read counts as observed
	return observed, enrolled, nil
}
