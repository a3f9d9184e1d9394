// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// partOf selects what the chart makes.
func partOf() client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/part-of": "heirloom"}
}

// installation is what is installed of Heirloom. What could not be read has an error in its place.
type installation struct {
	// configurations are the webhook configurations that have one of the chart's webhooks.
	configurations []configuration
	configErr      error
	// others are the mutating webhook configurations that are not ours.
	others []admissionv1.MutatingWebhookConfiguration
	// deployments run the program.
	deployments   []appsv1.Deployment
	deploymentErr error
}

// configuration is a webhook configuration of either kind. The webhooks of both have the type with more fields.
type configuration struct {
	kind, name string
	webhooks   []admissionv1.MutatingWebhook
}

func (c configuration) String() string { return c.kind + " " + c.name }

func (c configuration) webhook(name string) (admissionv1.MutatingWebhook, bool) {
	i := slices.IndexFunc(c.webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == name })
	if i < 0 {
		return admissionv1.MutatingWebhook{}, false
	}
	return c.webhooks[i], true
}

// services are those that the webhooks are called through.
func (i *installation) services() []types.NamespacedName {
	var all []types.NamespacedName
	for _, c := range i.configurations {
		for _, w := range c.webhooks {
			if s := w.ClientConfig.Service; s != nil {
				all = append(all, types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
			}
		}
	}
	slices.SortFunc(all, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

func findInstallation(ctx context.Context, c client.Reader) (*installation, error) {
	found := &installation{}
	expected, err := expectations()
	if err != nil {
		return nil, err
	}
	found.configErr = found.findConfigurations(ctx, c, expected)
	found.deploymentErr = found.findDeployments(ctx, c)
	return found, nil
}

func (i *installation) findConfigurations(ctx context.Context, c client.Reader, expected []expectation) error {
	ours := func(one configuration) bool {
		return slices.ContainsFunc(expected, func(e expectation) bool {
			_, has := one.webhook(e.chart.Name)
			return has && e.kind == one.kind
		})
	}
	mutating := &admissionv1.MutatingWebhookConfigurationList{}
	if err := c.List(ctx, mutating); err != nil {
		return fmt.Errorf("listing MutatingWebhookConfigurations: %w", err)
	}
	for _, item := range mutating.Items {
		if one := ofMutating(item); ours(one) {
			i.configurations = append(i.configurations, one)
		} else {
			i.others = append(i.others, item)
		}
	}
	validating := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := c.List(ctx, validating); err != nil {
		return fmt.Errorf("listing ValidatingWebhookConfigurations: %w", err)
	}
	for _, item := range validating.Items {
		if one := ofValidating(item); ours(one) {
			i.configurations = append(i.configurations, one)
		}
	}
	return nil
}

// findDeployments finds what the chart has labelled, and what the Services lead to that webhooks are called through.
func (i *installation) findDeployments(ctx context.Context, c client.Reader) error {
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, partOf()); err != nil {
		return fmt.Errorf("listing Deployments: %w", err)
	}
	i.deployments = list.Items
	for _, key := range i.services() {
		service := &corev1.Service{}
		if err := c.Get(ctx, key, service); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("getting Service %s: %w", key, err)
		}
		behind := &appsv1.DeploymentList{}
		if err := c.List(ctx, behind, client.InNamespace(key.Namespace)); err != nil {
			return fmt.Errorf("listing Deployments in namespace %s: %w", key.Namespace, err)
		}
		for _, one := range behind.Items {
			known := slices.ContainsFunc(i.deployments, func(d appsv1.Deployment) bool {
				return d.UID == one.UID && d.Name == one.Name && d.Namespace == one.Namespace
			})
			if !known && len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(one.Spec.Template.Labels)) {
				i.deployments = append(i.deployments, one)
			}
		}
	}
	return nil
}

func ofMutating(c admissionv1.MutatingWebhookConfiguration) configuration {
	return configuration{kind: "MutatingWebhookConfiguration", name: c.Name, webhooks: c.Webhooks}
}

func ofValidating(c admissionv1.ValidatingWebhookConfiguration) configuration {
	all := configuration{kind: "ValidatingWebhookConfiguration", name: c.Name}
	for _, w := range c.Webhooks {
		all.webhooks = append(all.webhooks, admissionv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return all
}
