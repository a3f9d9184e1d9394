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

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

// The kinds of webhook configurations.
const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// installation is the Heirloom that the settings are about: several can share a management cluster, and each is judged by its own
// settings alone. What could not be read has an error in its place.
type installation struct {
	// namespace is that of --heirloom-namespace, or empty.
	namespace string
	// expected are the chart's webhooks.
	expected []expectation
	// configurations are its webhook configurations, strange those that also have one of the chart's webhooks and are not its own.
	configurations, strange []configuration
	configErr               error
	// others are the mutating webhook configurations that have none of the chart's webhooks.
	others []admissionv1.MutatingWebhookConfiguration
	// deployment runs the program, if there is one. neighbours are those of other Heirlooms, unbounded all that have neither a
	// namespace nor a watch filter.
	deployment    *appsv1.Deployment
	neighbours    []types.NamespacedName
	unbounded     []types.NamespacedName
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

// findInstallation finds what is installed in the namespace, or in all. Without settings, what the chart's names say must do.
func findInstallation(ctx context.Context, c client.Reader, namespace string, known settings.Settings) (*installation, error) {
	expected, err := expectations()
	if err != nil {
		return nil, err
	}
	found := &installation{namespace: namespace, expected: expected}
	deployments, err := settings.Deployments(ctx, c, namespace)
	if err != nil {
		found.deploymentErr = fmt.Errorf("listing Deployments: %w", err)
	}
	found.choose(deployments)
	found.configErr = found.findConfigurations(ctx, c)
	found.chooseConfigurations(known)
	if found.deployment == nil && found.deploymentErr == nil {
		deployments, found.deploymentErr = found.behindServices(ctx, c)
		found.choose(deployments)
	}
	return found, nil
}

// choose takes the first Deployment, as the settings do.
func (i *installation) choose(deployments []appsv1.Deployment) {
	for at := range deployments {
		if settings.HandlesAll(&deployments[at]) {
			i.unbounded = append(i.unbounded, client.ObjectKeyFromObject(&deployments[at]))
		}
		if at == 0 {
			i.deployment = &deployments[at]
		} else {
			i.neighbours = append(i.neighbours, client.ObjectKeyFromObject(&deployments[at]))
		}
	}
}

// chooseConfigurations keeps the configurations that the settings name. If there are none, because the names are not the chart's or
// the settings are not known, it keeps all that are not named after another Heirloom.
func (i *installation) chooseConfigurations(known settings.Settings) {
	var names []string
	if known.Config != nil {
		names = append(names, known.Config.WebhookConfiguration)
	}
	if i.deployment != nil {
		names = append(names, i.deployment.Name)
	}
	ours := func(c configuration) bool {
		return !slices.ContainsFunc(i.neighbours, func(other types.NamespacedName) bool { return other.Name == c.name })
	}
	for _, name := range names {
		named := func(c configuration) bool { return c.name == name }
		if slices.ContainsFunc(i.configurations, named) {
			ours = named
			break
		}
	}
	all := i.configurations
	i.configurations = nil
	for _, c := range all {
		if ours(c) {
			i.configurations = append(i.configurations, c)
		} else {
			i.strange = append(i.strange, c)
		}
	}
}

// strangers names the configurations that are not judged.
func (i *installation) strangers() []string {
	var all []string
	for _, c := range i.strange {
		all = append(all, fmt.Sprintf("%s has webhooks of Heirloom too, and is not checked: it belongs to another Heirloom, or is left over", c))
	}
	return all
}

func (i *installation) findConfigurations(ctx context.Context, c client.Reader) error {
	ours := func(one configuration) bool {
		return slices.ContainsFunc(i.expected, func(e expectation) bool {
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

// behindServices finds the Deployments that webhooks are called through, for one that does not have the chart's labels.
func (i *installation) behindServices(ctx context.Context, c client.Reader) ([]appsv1.Deployment, error) {
	var found []appsv1.Deployment
	for _, key := range i.services() {
		service := &corev1.Service{}
		if i.namespace != "" && key.Namespace != i.namespace {
			continue
		}
		if err := c.Get(ctx, key, service); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("getting Service %s: %w", key, err)
		}
		behind := &appsv1.DeploymentList{}
		if err := c.List(ctx, behind, client.InNamespace(key.Namespace)); err != nil {
			return nil, fmt.Errorf("listing Deployments in namespace %s: %w", key.Namespace, err)
		}
		for _, one := range behind.Items {
			known := slices.ContainsFunc(found, func(d appsv1.Deployment) bool { return d.Name == one.Name && d.Namespace == one.Namespace })
			if !known && len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(one.Spec.Template.Labels)) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

func ofMutating(c admissionv1.MutatingWebhookConfiguration) configuration {
	return configuration{kind: mutatingKind, name: c.Name, webhooks: c.Webhooks}
}

func ofValidating(c admissionv1.ValidatingWebhookConfiguration) configuration {
	all := configuration{kind: validatingKind, name: c.Name}
	for _, w := range c.Webhooks {
		all.webhooks = append(all.webhooks, admissionv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return all
}
