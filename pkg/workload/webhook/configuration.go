// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

const (
	// ObjectName is the name of the MutatingWebhookConfiguration in a workload cluster. A Heirloom that is installed in the workload cluster
	// itself gives its configuration the name of its Service, and the name of a Service has no dots. All management clusters use the same
	// name: if a Cluster moves, the configuration of the new management cluster replaces the old configuration.
	ObjectName = "management.heirloom.dev"
	// WebhookName is the name of the webhook for Nodes, in the installed configuration and in its copies.
	WebhookName = "nodes.heirloom.dev"

	// LongestTimeout is the maximum number of seconds that a write of a Node waits for Heirloom (docs/design.md §4).
	LongestTimeout = 2
)

// Configuration makes the webhook configuration of a workload cluster from the configuration that is installed in the management cluster,
// so that the chart alone decides which requests call Heirloom, and how. It refuses a webhook that could stop a cluster, because no
// operator may be watching the workload cluster.
func Configuration(
	installed *admissionregistrationv1.MutatingWebhookConfiguration, url string,
) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	found := webhookOf(installed)
	if found == nil {
		return nil, fmt.Errorf("the installed MutatingWebhookConfiguration %s has no webhook %s", installed.Name, WebhookName)
	}
	if err := harmless(found); err != nil {
		return nil, fmt.Errorf("the webhook %s of the installed MutatingWebhookConfiguration %s cannot be copied to workload clusters: %w",
			WebhookName, installed.Name, err)
	}
	webhook := found.DeepCopy()
	webhook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url), CABundle: slices.Clone(found.ClientConfig.CABundle)}
	// A namespaceSelector has no effect on Nodes, which are in no namespace, but some clouds write one into every configuration.
	webhook.NamespaceSelector = nil
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ObjectName, Labels: labels()},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{*webhook},
	}, nil
}

// labels returns the labels of every object that Heirloom makes by itself.
func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "heirloom", "app.kubernetes.io/managed-by": "heirloom"}
}

func webhookOf(configuration *admissionregistrationv1.MutatingWebhookConfiguration) *admissionregistrationv1.MutatingWebhook {
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == WebhookName {
			return &configuration.Webhooks[i]
		}
	}
	return nil
}

// harmless returns an error with every way in which the webhook could stop a cluster, and every reason why the API server could not verify
// Heirloom's certificate; nil if there is none.
func harmless(webhook *admissionregistrationv1.MutatingWebhook) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	policy := ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail)
	refuse(policy != admissionregistrationv1.Ignore, "its failurePolicy is %s, not Ignore", policy)
	seconds := ptr.Deref(webhook.TimeoutSeconds, 10) // the API server's default
	refuse(seconds < 1 || seconds > LongestTimeout, "its timeoutSeconds is %d, not 1 to %d", seconds, LongestTimeout)
	refuse(len(webhook.Rules) == 0, "it has no rules")
	writes := sets.New(admissionregistrationv1.Create, admissionregistrationv1.Update)
	for _, rule := range webhook.Rules {
		ofNodes := slices.Equal(rule.APIGroups, []string{corev1.GroupName}) && slices.Equal(rule.Resources, []string{"nodes"})
		refuse(!ofNodes || !writes.HasAll(rule.Operations...),
			"its rules match more than CREATE and UPDATE of nodes: %v %v %v", rule.Operations, rule.APIGroups, rule.Resources)
	}
	// Without a CA bundle, an API server would trust the CA certificates of its own machine, which Heirloom does not choose.
	bundle := webhook.ClientConfig.CABundle
	refuse(len(bundle) == 0, "it has no caBundle (yet)")
	refuse(len(bundle) > 0 && !x509.NewCertPool().AppendCertsFromPEM(bundle), "its caBundle is not a PEM certificate")
	return errors.Join(errs...)
}
