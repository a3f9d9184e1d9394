// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/cluster-api/util/flags"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
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

func (o *Options) addCertificateFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's certificate and key, tls.crt and tls.key. They are loaded again when they change. With --webhook-cert-secret, Heirloom only writes tls.crt there.")
	fs.StringVar(&o.WebhookCertSecret, "webhook-cert-secret", "",
		"<namespace>/<name> of the Secret in which replicas share a CA and a serving certificate of Heirloom's own, which it makes, replaces and publishes in both webhook configurations named by --webhook-configuration. If unspecified, the certificate comes from --webhook-cert-dir.")
	fs.StringSliceVar(&o.WebhookCertDNSNames, "webhook-cert-dns-names", nil,
		"List of DNS names that the certificate in --webhook-cert-secret is for.")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", "",
		"Path to CA certificates. If specified, only clients whose certificate one of these CAs signed are answered on --webhook-port: API servers that have one in the kubeconfig of their admission configuration. It is loaded again when it changes.")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil,
		"List of common names, one of which a client's certificate must have. If unspecified, every certificate signed by a CA in --webhook-client-ca-file is accepted.")
}

func (c *Config) completeCertificates() error {
	if c.WebhookCertSecret == "" {
		return nil
	}
	name, err := namespacedName("--webhook-cert-secret", c.WebhookCertSecret, "<namespace>/<name>")
	c.WebhookCertName = name
	errs := []error{
		err,
		check(c.WebhookConfiguration != "", "--webhook-cert-secret needs --webhook-configuration"),
		check(len(c.WebhookCertDNSNames) > 0, "--webhook-cert-secret needs --webhook-cert-dns-names"),
	}
	for _, host := range c.WebhookCertDNSNames {
		isName := len(validation.IsDNS1123Subdomain(host)) == 0 || len(validation.IsWildcardDNS1123Subdomain(host)) == 0
		errs = append(errs, check(isName && net.ParseIP(host) == nil,
			"--webhook-cert-dns-names=%q: must be DNS names in lower case; a certificate for an IP address can only come from --webhook-cert-dir", host))
	}
	return errors.Join(errs...)
}

func (c *Config) validateClients() error {
	return check(len(c.WebhookClientNames) == 0 || c.WebhookClientCAFile != "", "--webhook-client-names needs --webhook-client-ca-file")
}

// LeaderElectionID is the name of the leader's Lease. It differs between instances that share a management cluster with disjoint
// watch filters or namespaces. A filter is a label value, which a Lease's name may not contain as it is; so it is hashed.
func (c *Config) LeaderElectionID() string {
	part := c.WatchFilter
	if c.Namespace != "" {
		part = c.Namespace + "/" + part // no label value has a slash
	}
	if part == "" {
		return "leader-election-heirloom"
	}
	return fmt.Sprintf("leader-election-heirloom-%08x", crc32.ChecksumIEEE([]byte(part)))
}
