// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

func (c *Config) completeWorkloads() error {
	errs := []error{
		c.completeWorkloadWebhook(),
		check(c.ClusterCacheConcurrency >= 1 && c.ClusterCacheClientBurst >= 1 && c.ClusterCacheClientQPS > 0,
			"--clustercache-concurrency, --clustercache-client-qps and --clustercache-client-burst must be positive"),
	}
	switch c.WorkloadAdmission {
	case workload.AdmitAutomatically, workload.AdmitByLoop, workload.AdmitByPolicy:
	case workload.AdmitByWebhook:
		errs = append(errs, check(c.WorkloadWebhookURL != "", "--workload-admission=webhook needs --workload-webhook-url"))
	default:
		errs = append(errs, fmt.Errorf("--workload-admission=%q: must be auto, none, webhook or policy", c.WorkloadAdmission))
	}
	return errors.Join(errs...)
}

// completeWorkloadWebhook also reads the name of the key's Secret where no URL is set: a release may need it.
func (c *Config) completeWorkloadWebhook() error {
	if c.WorkloadWebhookURL == "" && c.WorkloadWebhookKeySecret == "" {
		return nil
	}
	key, keyErr := namespacedName("--workload-webhook-key-secret", c.WorkloadWebhookKeySecret, "<namespace>/<name>")
	c.WorkloadWebhookKeyName = key
	if c.WorkloadWebhookURL == "" {
		return keyErr
	}
	base, baseErr := webhook.BaseURL(c.WorkloadWebhookURL)
	err := errors.Join(
		keyErr,
		check(baseErr == nil, "--workload-webhook-url=%q: %w", c.WorkloadWebhookURL, baseErr),
		check(c.WorkloadWebhookPort >= 1 && c.WorkloadWebhookPort <= 65535 && c.WorkloadWebhookPort != c.WebhookPort,
			"--workload-webhook-port=%d: must be between 1 and 65535, and not --webhook-port", c.WorkloadWebhookPort),
		check(c.WebhookConfiguration != "", "--webhook-configuration must not be empty"),
	)
	c.WorkloadWebhookURL = base
	return err
}
