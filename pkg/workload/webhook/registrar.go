// SPDX-License-Identifier: Apache-2.0

// Package webhook makes the API servers of workload clusters call Heirloom, which runs in the management cluster, when a Node is created or
// changed: it keeps a MutatingWebhookConfiguration in each workload cluster, whose only webhook calls Heirloom by URL. The loop alone would
// apply taints a moment after a Node has registered, when Pods may already run on it.
//
// The URL's path names the Cluster and proves by an HMAC that the name is genuine, so that the path of one cluster gives no answers about
// another cluster. Only Heirloom knows the key: all replicas share it in one Secret.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Registrar keeps the webhook configurations of workload clusters. Its methods are called by the leader.
type Registrar struct {
	// Management reads the installed MutatingWebhookConfiguration, whose name is Installed.
	Management client.Reader
	Installed  string
	// BaseURL is the URL under which workload clusters reach Heirloom, as the function BaseURL returned it.
	BaseURL string
	// Key returns the key for paths, or nil while there is none.
	Key func(context.Context) []byte
}

// ErrForeign means that a webhook configuration leads to another Heirloom.
var ErrForeign = errors.New("it points to another Heirloom, or to a URL that Heirloom no longer knows")

// OwnError is an error of Heirloom or of the management cluster, and not of the workload cluster.
type OwnError struct{ Err error }

// Error implements error.
func (e OwnError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e OwnError) Unwrap() error { return e.Err }

// Ensure makes the API server of the Cluster call Heirloom. It writes only differences, and reports whether it has written. Labels, other
// webhooks and a namespaceSelector that others have added stay. Match conditions are removed: a condition that is never true would switch
// the webhook off for good.
//
// The client reads from the API server itself: a cache of webhook configurations would cost more than it saves.
func (r *Registrar) Ensure(ctx context.Context, workload client.Client, cluster Identity) (registered bool, err error) {
	desired, err := r.desired(ctx, cluster)
	if err != nil {
		return false, OwnError{err}
	}
	existing := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ObjectName}}
	written, err := controllerutil.CreateOrUpdate(ctx, client.WithFieldOwner(workload, managedfields.Manager), existing, func() error {
		for key, value := range desired.Labels {
			metav1.SetMetaDataLabel(&existing.ObjectMeta, key, value)
		}
		webhook := desired.Webhooks[0].DeepCopy()
		if there := webhookOf(existing); there != nil {
			webhook.NamespaceSelector = there.NamespaceSelector
			*there = *webhook
		} else {
			existing.Webhooks = append(existing.Webhooks, *webhook)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("writing the webhook configuration of the workload cluster: %w", err)
	}
	return written != controllerutil.OperationResultNone, nil
}

func (r *Registrar) desired(ctx context.Context, cluster Identity) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	key, installed := r.Key(ctx), &admissionregistrationv1.MutatingWebhookConfiguration{}
	if key == nil {
		return nil, errors.New("the key for the webhook's path does not exist yet")
	}
	if err := r.Management.Get(ctx, types.NamespacedName{Name: r.Installed}, installed); err != nil {
		return nil, fmt.Errorf("getting the installed webhook configuration: %w", err)
	}
	return Configuration(installed, r.BaseURL+Path(key, cluster))
}

// Remove stops the API server of the Cluster from calling Heirloom, and reports whether it removed the configuration. If the configuration
// leads to the Heirloom of another management cluster, Remove keeps it and returns ErrForeign: the Cluster has moved there.
func (r *Registrar) Remove(ctx context.Context, workload client.Client, cluster Identity) (removed bool, err error) {
	existing := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err = workload.Get(ctx, types.NamespacedName{Name: ObjectName}, existing)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting the webhook configuration of the workload cluster: %w", err)
	}
	if !r.leadsHere(existing, cluster) {
		return false, ErrForeign
	}
	err = workload.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting the webhook configuration of the workload cluster: %w", err)
	}
	return err == nil, nil
}

// leadsHere reports whether a configuration makes an API server call this Heirloom about this Cluster.
func (r *Registrar) leadsHere(configuration *admissionregistrationv1.MutatingWebhookConfiguration, cluster Identity) bool {
	webhook := webhookOf(configuration)
	return webhook != nil && strings.HasPrefix(ptr.Deref(webhook.ClientConfig.URL, ""), r.BaseURL+directory(cluster.NamespacedName))
}
