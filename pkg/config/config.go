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

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// auto is the value of --cluster-api-taint-propagation that makes Heirloom find out.
const auto = "auto"

// Config is what the options mean, checked.
type Config struct {
	Options

	// ManagementClusterKey is the name in --management-cluster, or empty.
	ManagementClusterKey types.NamespacedName
	// WorkloadWebhookKeyName is the name in --workload-webhook-key-secret, or empty.
	WorkloadWebhookKeyName types.NamespacedName
	// WebhookCertName is the name in --webhook-cert-secret, or empty.
	WebhookCertName types.NamespacedName
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
	c.Rules.PaceEviction = c.NoExecuteRate > 0
	err := check(c.NoExecuteRate >= 0 && !math.IsInf(c.NoExecuteRate, 0),
		"--no-execute-rate=%v: must be a number of Nodes per minute, 0 or more", c.NoExecuteRate)
	switch c.TaintPropagation {
	case auto:
		c.DetectTaintPropagation = true
	case inherit.PropagationEnabled.String():
		c.Rules.ClusterAPITaints = inherit.PropagationEnabled
	case inherit.PropagationDisabled.String():
		c.Rules.ClusterAPITaints = inherit.PropagationDisabled
	default:
		err = errors.Join(err, fmt.Errorf("--cluster-api-taint-propagation=%q: must be auto, enabled or disabled", c.TaintPropagation))
	}
	return errors.Join(labelsErr, annotationsErr, err)
}

// check returns the error unless what is asked for holds.
func check(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// invalid returns an error for each of the messages about a flag's value.
func invalid(flag, value string, messages []string) error {
	var errs []error
	for _, message := range messages {
		errs = append(errs, fmt.Errorf("%s=%q: %s", flag, value, message))
	}
	return errors.Join(errs...)
}

// namespacedName reads a flag's value of the form <namespace>/<name>. allowed says what it may be.
func namespacedName(flag, value, allowed string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("%s=%q: must be %s", flag, value, allowed)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
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

func (c *Config) completeManagementCluster() (err error) {
	if c.ManagementCluster != "" {
		c.ManagementClusterKey, err = namespacedName("--management-cluster", c.ManagementCluster, "<namespace>/<name> or empty")
	}
	return err
}

func (c *Config) completeProviderGroups() error {
	var errs []error
	for _, group := range c.AdditionalProviderGroups {
		errs = append(errs, invalid("--additional-provider-groups", group, validation.IsDNS1123Subdomain(group)))
	}
	c.ProviderGroups = slices.Concat([]string{inherit.InfrastructureGroup, inherit.BootstrapGroup}, c.AdditionalProviderGroups)
	return errors.Join(errs...)
}

func (c *Config) completeServers() error {
	_, _, addrErr := net.SplitHostPort(c.HealthAddr)
	_, versionErr := cliflag.TLSVersion(c.Diagnostics.TLSMinVersion)
	_, suitesErr := cliflag.TLSCipherSuites(c.Diagnostics.TLSCipherSuites)
	err := errors.Join(
		check(c.WebhookPort >= 1 && c.WebhookPort <= 65535, "--webhook-port=%d: must be between 1 and 65535", c.WebhookPort),
		check(c.ShutdownDelay >= 0, "--shutdown-delay=%s: must not be negative", c.ShutdownDelay),
		check(addrErr == nil, "--health-addr=%q: must be <host>:<port> or :<port>: %w", c.HealthAddr, addrErr),
		check(versionErr == nil, "--tls-min-version: %w", versionErr),
		check(suitesErr == nil, "--tls-cipher-suites: %w", suitesErr),
	)
	if err != nil {
		return err
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(c.Diagnostics)
	if err != nil {
		return fmt.Errorf("TLS and diagnostics flags: %w", err)
	}
	c.TLS, c.Metrics = tlsOptions, *metricsOptions
	return nil
}

func (c *Config) validateWatch() error {
	errs := []error{
		check(c.SyncPeriod > 0, "--sync-period=%s: must be positive", c.SyncPeriod),
		invalid("--watch-filter", c.WatchFilter, validation.IsValidLabelValue(c.WatchFilter)),
	}
	if c.Namespace != "" {
		errs = append(errs, invalid("--namespace", c.Namespace, validation.IsDNS1123Label(c.Namespace)))
	}
	return errors.Join(errs...)
}

func (c *Config) validateLeaderElection() error {
	retry, renew, lease := c.LeaderElectRetryPeriod, c.LeaderElectRenewDeadline, c.LeaderElectLeaseDuration
	return check(!c.LeaderElect || retry > 0 && retry < renew && renew < lease,
		"leader election: --leader-elect-retry-period must be positive and shorter than "+
			"--leader-elect-renew-deadline, and that shorter than --leader-elect-lease-duration")
}

func (c *Config) validateLogs() error {
	err := logsv1.Validate(c.Logs, nil, nil).ToAggregate()
	return check(err == nil, "logging flags (such as --logging-format): %w", err)
}
