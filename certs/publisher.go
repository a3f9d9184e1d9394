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

// injected is the annotation that lets cert-manager's injector manage the CA bundles of a webhook configuration.
const injected = "cert-manager.io/inject-ca-from"

// read reads the webhook configurations of that name, as far as they exist.
func read(ctx context.Context, live client.Reader, name string) ([]client.Object, error) {
	var found []client.Object
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		err := live.Get(ctx, types.NamespacedName{Name: name}, configuration)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting the installed webhook configuration: %w", err)
		}
		if err == nil {
			found = append(found, configuration)
		}
	}
	return found, nil
}

// clientConfigs returns the webhooks' own, to be changed in place.
func clientConfigs(configuration client.Object) []*admissionregistrationv1.WebhookClientConfig {
	var configs []*admissionregistrationv1.WebhookClientConfig
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	}
	return configs
}

// publishIn writes the CA bundle to all webhooks of a configuration, unless it has changed since it was read, and reports
// whether the bundle was different before.
func publishIn(ctx context.Context, writer client.Writer, configuration client.Object, bundle []byte) (bool, error) {
	name := configuration.GetName()
	if from, found := configuration.GetAnnotations()[injected]; found {
		return false, fmt.Errorf("the webhook configuration %s belongs to cert-manager's injector, by its annotation %s=%s: "+
			"remove the annotation, or do not use --webhook-cert-secret", name, injected, from)
	}
	before, _ := configuration.DeepCopyObject().(client.Object)
	changed := false
	for _, webhook := range clientConfigs(configuration) {
		if !bytes.Equal(webhook.CABundle, bundle) {
			webhook.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return false, nil
	}
	// A strategic merge patch names the bundles and nothing else: the installer of the webhooks keeps all other fields.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, configuration, patch, fieldManager); err != nil {
		return false, fmt.Errorf("publishing the CA bundle in the webhook configuration %s: %w", name, err)
	}
	return true, nil
}
