// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// Unknown is the result of Admission if the configuration cannot be read.
const Unknown = "unknown"

// Admission says how the API server of a Cluster admits its Nodes: by policy, by webhook, or not at all, so that Nodes inherit only from
// the loop. installed is the name of the webhook configuration there; the management cluster has the chart's name.
func Admission(ctx context.Context, server client.Reader, installed string) string {
	for _, version := range []string{"v1", "v1beta1"} {
		binding := policy.Binding(schema.GroupVersion{Group: admissionv1.GroupName, Version: version})
		switch err := server.Get(ctx, client.ObjectKeyFromObject(binding), binding); {
		case err == nil:
			return inherit.AdmitByPolicy
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return Unknown
		}
	}
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	err := server.Get(ctx, types.NamespacedName{Name: installed}, configuration)
	if err != nil && !apierrors.IsNotFound(err) {
		return Unknown
	}
	if slices.ContainsFunc(configuration.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == webhook.WebhookName }) {
		return inherit.AdmitByWebhook
	}
	return "loop"
}
