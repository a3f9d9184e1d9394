// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
// In mode Observe, it warns instead.
type taints struct{ policy func() inherit.Policy }

func (h taints) decide(_ context.Context, req admission.Request) (answer, error) {
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
	errs := taint.ValidateCarrier(object, old, req.Kind.Group == inherit.ControlPlaneGroup)
	if len(errs) == 0 {
		return answer{outcome: metrics.Unchanged, warnings: h.namingProblems(req.Kind.Kind, object)}, nil
	}
	if h.policy().Mode == inherit.Observe {
		return answer{outcome: metrics.Observed, warnings: []string{"heirloom: would be refused (--mode=observe): " + oneLine(errs.ToAggregate())}}, nil
	}
	// The response of an API server to an invalid object, with each error and its field path.
	status := apierrors.NewInvalid(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, req.Name, errs).Status()
	refusal := admission.Errored(http.StatusUnprocessableEntity, errs.ToAggregate())
	refusal.Result = &status
	refused := answer{outcome: metrics.Refused, refusal: &refusal}
	if len(errs) == taint.MostProblems {
		refused.warnings = []string{"heirloom: this list of errors may be incomplete"}
	}
	return refused, nil
}

// namingProblems returns a warning for each entry without effect in sync.heirloom.dev annotations. The other entries have effect.
func (h taints) namingProblems(kind string, object *taint.Carrier) []string {
	var problems []string
	object.Annotations(func(annotations map[string]string, itself bool) {
		problems = append(problems, h.policy().NamingProblems(annotations, itself && inherit.Names(kind))...)
	})
	return warnings(problems, func(problem string) string { return "heirloom: " + problem })
}
