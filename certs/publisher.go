// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// injected is the annotation by which cert-manager's injector keeps the CA bundles of a webhook configuration.
const injected = "cert-manager.io/inject-ca-from"

// configuration is an installed webhook configuration.
type configuration struct {
	object client.Object
	// clients are the webhooks' own.
	clients func() []*admissionregistrationv1.WebhookClientConfig
}

// configurations returns both kinds, to be read.
func configurations() []configuration {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return []configuration{
		{object: mutating, clients: func() (clients []*admissionregistrationv1.WebhookClientConfig) {
			for i := range mutating.Webhooks {
				clients = append(clients, &mutating.Webhooks[i].ClientConfig)
			}
			return clients
		}},
		{object: validating, clients: func() (clients []*admissionregistrationv1.WebhookClientConfig) {
			for i := range validating.Webhooks {
				clients = append(clients, &validating.Webhooks[i].ClientConfig)
			}
			return clients
		}},
	}
}

// read reads those configurations of that name that there are.
func read(ctx context.Context, live client.Reader, name string) ([]configuration, error) {
	var found []configuration
	for _, c := range configurations() {
		err := live.Get(ctx, types.NamespacedName{Name: name}, c.object)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting the installed webhook configuration: %w", err)
		}
		if err == nil {
			found = append(found, c)
		}
	}
	return found, nil
}

// publish gives all webhooks of a configuration the CA bundle, if it is still as it was read, and reports whether
// it was different before.
func (c configuration) publish(ctx context.Context, writer client.Writer, bundle []byte) (bool, error) {
	name := c.object.GetName()
	if from, found := c.object.GetAnnotations()[injected]; found {
		return false, fmt.Errorf("the webhook configuration %s belongs to cert-manager's injector, by its annotation %s=%s: "+
			"remove the annotation, or do not use --webhook-cert-secret", name, injected, from)
	}
	before, ok := c.object.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copying the webhook configuration %s", name) // never
	}
	changed := false
	for _, webhook := range c.clients() {
		if !bytes.Equal(webhook.CABundle, bundle) {
			webhook.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return false, nil
	}
	// A strategic merge patch names the bundles and nothing else: who has installed the webhooks keeps all other fields.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, c.object, patch, fieldManager); err != nil {
		return false, fmt.Errorf("publishing the CA bundle in the webhook configuration %s: %w", name, err)
	}
	return true, nil
}
