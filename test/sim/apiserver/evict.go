// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// evicts reports whether a request is for the subresource eviction of a Pod.
func evicts(info *request.RequestInfo) bool {
	return info.APIGroup == "" && info.Resource == "pods" && info.Subresource == "eviction" && info.Verb == "create"
}

// evict serves the subresource eviction of a Pod: it deletes the Pod, unless Options.Budget says that the Pod must stay.
func (s *Server) evict(k *kind, w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	ctx := request.WithNamespace(r.Context(), info.Namespace)
	eviction := &policyv1.Eviction{}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		_, _, err = codecs.UniversalDeserializer().Decode(body, nil, eviction)
	}
	if err == nil && s.options.Budget != nil && s.options.Budget() {
		tooMany := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		tooMany.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget needs more healthy pods"}}
		err = tooMany
	}
	if err == nil {
		options := eviction.DeleteOptions
		if options == nil {
			options = &metav1.DeleteOptions{}
		}
		_, _, err = k.main.Delete(ctx, info.Name, rest.ValidateAllObjectFunc, options)
	}
	if broken := apierrors.APIStatus(nil); err != nil && !errors.As(err, &broken) {
		err = apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		fail(err, w, r)
		return
	}
	done := &metav1.Status{Status: metav1.StatusSuccess}
	responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, corev1.SchemeGroupVersion, w, r, http.StatusCreated, done, false)
}
