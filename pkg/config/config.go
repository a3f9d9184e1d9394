// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/cluster-api/util/flags"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// propagationAuto is the value of --cluster-api-taint-propagation that makes Heirloom find out.
const propagationAuto = "auto"

// managementClusterAuto is the value of --management-cluster that makes Heirloom find out.
const managementClusterAuto = "auto"

// Config is what the options mean, checked.
type Config struct {
	Options

	// ManagementClusterKey is the name in --management-cluster, or empty.
	ManagementClusterKey types.NamespacedName
	// DetectManagementCluster says that Heirloom has to find out which Cluster it is.
	DetectManagementCluster bool
	// WorkloadWebhookKeyName is the name in --workload-webhook-key-secret, or empty.
	WorkloadWebhookKeyName types.NamespacedName
	// WebhookCertName is the name in --webhook-cert-secret, or empty; WebhookCertHosts what its certificate is for.
	WebhookCertName  types.NamespacedName
	WebhookCertHosts []string
	// Rules are the options of the inheritance rules.
	Rules inherit.Policy
	// DetectTaintPropagation says that Heirloom has to find out Rules.ClusterAPITaints.
	DetectTaintPropagation bool
	// ProviderGroups are the API groups of all infrastructure and bootstrap providers.
	ProviderGroups []string
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
		c.completeProviderGroups(),
		c.completeWorkloads(),
		c.completeServers(),
		c.completeCertificates(),
		c.validateClients(),
		c.validateWatch(),
		c.validateLeaderElection(),
		c.validateLogs(),
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
	if !(c.NoExecuteRate >= 0) || math.IsInf(c.NoExecuteRate, 0) {
		err = errors.Join(err, fmt.Errorf("--no-execute-rate=%v: must be a number of Nodes per minute, 0 or more", c.NoExecuteRate))
	}
	c.Rules.PaceEviction = c.NoExecuteRate > 0
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
	switch c.ManagementCluster {
	case "":
		return nil
	case managementClusterAuto:
		c.DetectManagementCluster = true
		return nil
	}
	namespace, name, ok := strings.Cut(c.ManagementCluster, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("--management-cluster=%q: must be auto, <namespace>/<name> or empty", c.ManagementCluster)
	}
	c.ManagementClusterKey = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}

func (c *Config) completeProviderGroups() error {
	var errs []error
	for _, group := range c.AdditionalProviderGroups {
		for _, msg := range validation.IsDNS1123Subdomain(group) {
			errs = append(errs, fmt.Errorf("--additional-provider-groups=%q: %s", group, msg))
		}
	}
	c.ProviderGroups = slices.Concat([]string{capi.InfrastructureGroup, capi.BootstrapGroup}, c.AdditionalProviderGroups)
	return errors.Join(errs...)
}

func (c *Config) completeServers() error {
	var errs []error
	if c.WebhookPort < 1 || c.WebhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port=%d: must be between 1 and 65535", c.WebhookPort))
	}
	if c.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay=%s: must not be negative", c.ShutdownDelay))
	}
	if _, _, err := net.SplitHostPort(c.HealthAddr); err != nil {
		errs = append(errs, fmt.Errorf("--health-addr=%q: must be <host>:<port> or :<port>: %w", c.HealthAddr, err))
	}
	if _, err := cliflag.TLSVersion(c.Diagnostics.TLSMinVersion); err != nil {
		errs = append(errs, fmt.Errorf("--tls-min-version: %w", err))
	}
	if _, err := cliflag.TLSCipherSuites(c.Diagnostics.TLSCipherSuites); err != nil {
		errs = append(errs, fmt.Errorf("--tls-cipher-suites: %w", err))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(c.Diagnostics)
	if err != nil {
		return fmt.Errorf("TLS and diagnostics flags: %w", err)
	}
	c.TLS, c.Metrics = tlsOptions, *metricsOptions
	return nil
}

func (c *Config) validateWatch() error {
	var errs []error
	if c.SyncPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--sync-period=%s: must be positive", c.SyncPeriod))
	}
	for _, msg := range validation.IsValidLabelValue(c.WatchFilter) {
		errs = append(errs, fmt.Errorf("--watch-filter=%q: %s", c.WatchFilter, msg))
	}
	if c.Namespace != "" {
		for _, msg := range validation.IsDNS1123Label(c.Namespace) {
			errs = append(errs, fmt.Errorf("--namespace=%q: %s", c.Namespace, msg))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateLeaderElection() error {
	retry, renew, lease := c.LeaderElectRetryPeriod, c.LeaderElectRenewDeadline, c.LeaderElectLeaseDuration
	if !c.LeaderElect || retry > 0 && retry < renew && renew < lease {
		return nil
	}
	return errors.New("leader election: --leader-elect-retry-period must be positive and shorter than " +
		"--leader-elect-renew-deadline, and that shorter than --leader-elect-lease-duration")
}

func (c *Config) validateLogs() error {
	if err := logsv1.Validate(c.Logs, nil, nil).ToAggregate(); err != nil {
		return fmt.Errorf("logging flags (such as --logging-format): %w", err)
	}
	return nil
}
