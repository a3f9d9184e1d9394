// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/cluster-api/util/flags"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// propagationAuto is the value of --cluster-api-taint-propagation that makes Heirloom find out.
const propagationAuto = "auto"

// Config is what the options mean, checked.
type Config struct {
	Options

	// ManagementClusterKey is the name in --management-cluster, or empty.
	ManagementClusterKey types.NamespacedName
	// Rules are the options of the inheritance rules.
	Rules inherit.Policy
	// DetectTaintPropagation says that Heirloom has to find out Rules.ClusterAPITaints.
	DetectTaintPropagation bool
	// TLS adjusts the TLS configuration of the webhook and the diagnostics server.
	TLS []func(*tls.Config)
	// Metrics is where and how metrics are served.
	Metrics metricsserver.Options
}

// Complete checks the options and returns what they mean. Its error names every flag that is wrong.
func (o *Options) Complete() (*Config, error) {
	c := &Config{Options: *o}
	err := errors.Join(
		c.completeRules(),
		c.completeManagementCluster(),
		c.completeServers(),
		logsv1.Validate(o.Logs, nil, nil).ToAggregate(),
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) completeRules() error {
	labels, labelsErr := compile("--additional-sync-machine-labels", c.AdditionalSyncMachineLabels)
	annotations, annotationsErr := compile("--additional-sync-machine-annotations", c.AdditionalSyncMachineAnnotations)
	c.Rules = inherit.Policy{AdditionalLabels: labels, AdditionalAnnotations: annotations, WatchFilter: c.WatchFilter}
	var err error
	switch c.TaintPropagation {
	case propagationAuto:
		c.DetectTaintPropagation = true
	case inherit.PropagationEnabled.String():
		c.Rules.ClusterAPITaints = inherit.PropagationEnabled
	case inherit.PropagationDisabled.String():
		c.Rules.ClusterAPITaints = inherit.PropagationDisabled
	default:
		err = fmt.Errorf("--cluster-api-taint-propagation=%q: must be auto, enabled or disabled", c.TaintPropagation)
	}
	return errors.Join(labelsErr, annotationsErr, err)
}

func compile(flag string, expressions []string) ([]*regexp.Regexp, error) {
	var compiled []*regexp.Regexp
	var errs []error
	for _, expression := range expressions {
		r, err := regexp.Compile(expression)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			continue
		}
		compiled = append(compiled, r)
	}
	return compiled, errors.Join(errs...)
}

func (c *Config) completeManagementCluster() error {
	if c.ManagementCluster == "" {
		return nil
	}
	namespace, name, ok := strings.Cut(c.ManagementCluster, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("--management-cluster=%q: must be <namespace>/<name>", c.ManagementCluster)
	}
	c.ManagementClusterKey = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}

func (c *Config) completeServers() error {
	var errs []error
	if c.WebhookPort < 1 || c.WebhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port=%d: must be between 1 and 65535", c.WebhookPort))
	}
	if c.SyncPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--sync-period=%s: must be positive", c.SyncPeriod))
	}
	if c.LeaderElect && (c.LeaderElectRenewDeadline >= c.LeaderElectLeaseDuration || c.LeaderElectRetryPeriod >= c.LeaderElectRenewDeadline) {
		errs = append(errs, errors.New("leader election: --leader-elect-retry-period must be shorter than --leader-elect-renew-deadline, and that shorter than --leader-elect-lease-duration"))
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(c.Diagnostics)
	if err != nil {
		errs = append(errs, fmt.Errorf("TLS and diagnostics flags: %w", err))
	} else {
		c.TLS, c.Metrics = tlsOptions, *metricsOptions
	}
	return errors.Join(errs...)
}
