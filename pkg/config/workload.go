// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

func (c *Config) completeWorkloads() error {
	errs := []error{c.completeWorkloadWebhook()}
	switch c.WorkloadAdmission {
	case workload.AdmitAutomatically, workload.AdmitByLoop, workload.AdmitByPolicy:
	case workload.AdmitByWebhook:
		if c.WorkloadWebhookURL == "" {
			errs = append(errs, errors.New("--workload-admission=webhook needs --workload-webhook-url"))
		}
	default:
		errs = append(errs, fmt.Errorf("--workload-admission=%q: must be auto, none, webhook or policy", c.WorkloadAdmission))
	}
	if c.ClusterCacheConcurrency < 1 || c.ClusterCacheClientBurst < 1 || !(c.ClusterCacheClientQPS > 0) {
		errs = append(errs, errors.New("--clustercache-concurrency, --clustercache-client-qps and --clustercache-client-burst must be positive"))
	}
	return errors.Join(errs...)
}

func (c *Config) completeWorkloadWebhook() error {
	errs := []error{c.completeWorkloadWebhookKey()}
	if c.WorkloadWebhookURL == "" {
		return errors.Join(errs...)
	}
	base, err := webhook.BaseURL(c.WorkloadWebhookURL)
	if err != nil {
		errs = append(errs, fmt.Errorf("--workload-webhook-url=%q: %w", c.WorkloadWebhookURL, err))
	}
	c.WorkloadWebhookURL = base
	if c.WorkloadWebhookKeyRotation < webhook.ShortestPeriod {
		errs = append(errs, fmt.Errorf("--workload-webhook-key-rotation=%s: must be %s or more", c.WorkloadWebhookKeyRotation, webhook.ShortestPeriod))
	}
	if c.WorkloadWebhookPort < 1 || c.WorkloadWebhookPort > 65535 || c.WorkloadWebhookPort == c.WebhookPort {
		errs = append(errs, fmt.Errorf("--workload-webhook-port=%d: must be between 1 and 65535, and not --webhook-port", c.WorkloadWebhookPort))
	}
	if c.WebhookConfiguration == "" {
		errs = append(errs, errors.New("--webhook-configuration must not be empty"))
	}
	return errors.Join(errs...)
}

// completeWorkloadWebhookKey reads the name of the Secret, which a release may need also where no URL is set any more.
func (c *Config) completeWorkloadWebhookKey() error {
	if c.WorkloadWebhookURL == "" && c.WorkloadWebhookKeySecret == "" {
		return nil
	}
	namespace, name, ok := strings.Cut(c.WorkloadWebhookKeySecret, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("--workload-webhook-key-secret=%q: must be <namespace>/<name>", c.WorkloadWebhookKeySecret)
	}
	c.WorkloadWebhookKeyName = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}
