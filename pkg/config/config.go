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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/cluster-api/util/flags"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// The values of --enrollment.
const enrollAll, enrollLabeled = "all", "labeled"

// enrollLabelled is a deprecated spelling of enrollLabeled.
const enrollLabelled = "labelled"

// auto is the value of --cluster-api-taint-propagation with which Heirloom detects the state.
const auto = "auto"

// Config has the validated options, and the settings that follow from them.
type Config struct {
	Options

	// The names in --management-cluster, --workload-webhook-key-secret and --webhook-cert-secret, or empty.
	ManagementClusterKey, WorkloadWebhookKeyName, WebhookCertName types.NamespacedName
	// Rules are the settings of the inheritance rules.
	Rules inherit.Policy
	// NoExecuteLimits says how existing Nodes get taints that evict Pods.
	NoExecuteLimits inherit.NoExecute
	// DetectTaintPropagation says that Heirloom has to detect Rules.ClusterAPITaints.
	DetectTaintPropagation bool
	// ProviderGroups are the API groups of all infrastructure and bootstrap providers.
	ProviderGroups []string
	// TLS adjusts the TLS configuration of the webhook and the diagnostics server.
	TLS []func(*tls.Config)
	// Metrics configures the metrics server.
	Metrics metricsserver.Options
}

// Complete validates the options and returns the settings. Its error names every flag that is wrong.
func (o *Options) Complete() (*Config, error) {
	c := &Config{Options: *o}
	err := errors.Join(c.completeObjects(), c.completeRules(), c.completeWorkloads(), c.completeServers(), c.completeCertificates())
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) completeRules() error {
	if c.Enrollment == enrollLabelled {
		c.Enrollment = enrollLabeled
	}
	labels, labelsErr := compile("--additional-sync-machine-labels", c.AdditionalSyncMachineLabels)
	annotations, annotationsErr := compile("--additional-sync-machine-annotations", c.AdditionalSyncMachineAnnotations)
	state, known := map[string]inherit.TaintPropagation{
		auto: inherit.PropagationUnknown, "enabled": inherit.PropagationEnabled, "disabled": inherit.PropagationDisabled,
	}[c.TaintPropagation]
	c.DetectTaintPropagation = c.TaintPropagation == auto && c.Mode != string(inherit.Observe) // the dry run needs the right to write
	c.NoExecuteLimits = inherit.NoExecute{
		Budgets: c.NoExecute == inherit.NoExecuteBudgets, Deadline: c.NoExecuteDeadline, Rate: c.NoExecuteRate,
		Clusters: intstr.Parse(c.NoExecuteClusters), Soak: c.NoExecuteSoak, PerCluster: inherit.PerCluster(c.PerClusterNoExecute),
	}
	clusters, clustersErr := intstr.GetScaledValueFromIntOrPercent(&c.NoExecuteLimits.Clusters, 100, true)
	c.Rules = inherit.Policy{
		AdditionalLabels: labels, AdditionalAnnotations: annotations, WatchFilter: c.WatchFilter,
		PaceEviction: c.NoExecuteLimits.Limits(), ClusterAPITaints: state,
		Mode: inherit.Mode(c.Mode), OnlyLabeled: c.Enrollment == enrollLabeled, SyncAllowed: c.PerClusterSyncAllowed, WorkerRole: c.WorkerRole,
	}
	var errs []error
	for _, text := range c.NodeFacts {
		fact, err := inherit.ParseFact(text)
		errs = append(errs, check(err == nil, "--node-fact=%w", err), check(err != nil || fact.OfMachines() || slices.Contains(c.ProviderGroups, fact.Kind.Group),
			"--node-fact=%q: API group %s belongs to no known provider (see --additional-provider-groups)", text, fact.Kind.Group))
		c.Rules.Facts = append(c.Rules.Facts, fact)
	}
	if c.WorkerRole != "" {
		errs = append(errs, invalid("--worker-role", c.WorkerRole, validation.IsDNS1123Label(c.WorkerRole)),
			check(c.WorkerRole != "control-plane" && c.WorkerRole != "master", "--worker-role=%s: this role is for control planes", c.WorkerRole))
	}
	_, broken := inherit.ParseNamedKeys(strings.Join(c.PerClusterSyncAllowed, ","))
	return errors.Join(labelsErr, annotationsErr, errors.Join(errs...),
		check(c.NoExecuteRate >= 0 && !math.IsInf(c.NoExecuteRate, 0),
			"--no-execute-rate=%v: must be a number of Nodes per minute, 0 or more", c.NoExecuteRate),
		check(c.NoExecuteLimits.Budgets || c.NoExecute == inherit.NoExecutePace, "--no-execute=%q: must be pace or budgets", c.NoExecute),
		check(c.NoExecuteDeadline >= 0, "--no-execute-deadline=%s: must not be negative", c.NoExecuteDeadline),
		check(clustersErr == nil && clusters >= 1, "--no-execute-clusters=%q: must be a number of Clusters, or a percentage such as 10%%", c.NoExecuteClusters),
		check(c.NoExecuteSoak >= 0, "--no-execute-soak=%s: must not be negative", c.NoExecuteSoak),
		check(slices.Contains([]string{"none", "gentler", "any"}, c.PerClusterNoExecute), "--per-cluster-no-execute=%q: must be none, gentler or any", c.PerClusterNoExecute),
		check(c.Rules.Mode == inherit.Enforce || c.Rules.Mode == inherit.Observe, "--mode=%q: must be enforce or observe", c.Mode),
		check(len(broken) == 0, "--per-cluster-sync-allowed: %s", strings.Join(broken, "; ")),
		check(c.Enrollment == enrollAll || c.Enrollment == enrollLabeled, "--enrollment=%q: must be all or labeled", c.Enrollment),
		check(known, "--cluster-api-taint-propagation=%q: must be auto, enabled or disabled", c.TaintPropagation))
}

// completeObjects validates the options about the objects that Heirloom handles.
func (c *Config) completeObjects() (err error) {
	if c.ManagementCluster != "" {
		c.ManagementClusterKey, err = namespacedName("--management-cluster", c.ManagementCluster, "<namespace>/<name> or empty")
	}
	c.ProviderGroups = slices.Concat([]string{inherit.InfrastructureGroup, inherit.BootstrapGroup}, c.AdditionalProviderGroups)
	errs := []error{
		err,
		check(c.SyncPeriod > 0, "--sync-period=%s: must be positive", c.SyncPeriod),
		invalid("--watch-filter", c.WatchFilter, validation.IsValidLabelValue(c.WatchFilter)),
	}
	c.Namespaces = slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	for _, namespace := range c.Namespaces {
		errs = append(errs, invalid("--namespace", namespace, validation.IsDNS1123Label(namespace)))
	}
	for _, group := range c.AdditionalProviderGroups {
		errs = append(errs, invalid("--additional-provider-groups", group, validation.IsDNS1123Subdomain(group)),
			check(!wellKnown(group), "--additional-provider-groups=%q: this API group belongs to Kubernetes, not to a provider", group))
	}
	return errors.Join(errs...)
}

var wellKnownGroups = regexp.MustCompile(`^(apps|autoscaling|batch|extensions|policy)$|(^|\.)(x-)?k8s\.io$`)

// wellKnown reports whether the group belongs to Kubernetes or to one of its subprojects other than Cluster API. Its kinds hold no object
// of a provider, and Heirloom would need the right to change all of them.
func wellKnown(group string) bool {
	return wellKnownGroups.MatchString(group) && !strings.HasSuffix(group, ".cluster.x-k8s.io")
}

func (c *Config) completeServers() error {
	retry, renew, lease := c.LeaderElectRetryPeriod, c.LeaderElectRenewDeadline, c.LeaderElectLeaseDuration
	_, _, addrErr := net.SplitHostPort(c.HealthAddr)
	logsErr := logsv1.Validate(c.Logs, nil, nil).ToAggregate()
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(c.Diagnostics)
	if err == nil {
		c.TLS, c.Metrics = tlsOptions, *metricsOptions
	}
	return errors.Join(
		check(err == nil, "--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: %w", err),
		check(c.WebhookPort >= 1 && c.WebhookPort <= 65535, "--webhook-port=%d: must be between 1 and 65535", c.WebhookPort),
		check(c.ShutdownDelay >= 0, "--shutdown-delay=%s: must not be negative", c.ShutdownDelay),
		check(addrErr == nil, "--health-addr=%q: must be <host>:<port> or :<port>: %w", c.HealthAddr, addrErr),
		check(logsErr == nil, "logging flags (such as --logging-format): %w", logsErr),
		check(!c.LeaderElect || retry > 0 && retry < renew && renew < lease,
			"--leader-elect-retry-period must be positive and shorter than --leader-elect-renew-deadline, "+
				"which must be shorter than --leader-elect-lease-duration"))
}

func (c *Config) completeWorkloads() error {
	return errors.Join(
		c.completeWorkloadWebhook(),
		check(c.ClusterCacheConcurrency >= 1 && c.ClusterCacheClientBurst >= 1 && c.ClusterCacheClientQPS > 0,
			"--clustercache-concurrency, --clustercache-client-qps and --clustercache-client-burst must be positive"),
		check(slices.Contains(inherit.Admissions, c.WorkloadAdmission), "--workload-admission=%q: must be auto, none, webhook or policy", c.WorkloadAdmission),
		check(c.WorkloadAdmission != inherit.AdmitByWebhook || c.WorkloadWebhookURL != "",
			"--workload-admission=webhook needs --workload-webhook-url"),
		check(c.WorkloadClusters || c.WorkloadWebhookURL == "", "--workload-webhook-url needs --workload-clusters"),
		check(c.WorkloadClusters || slices.Contains([]string{inherit.AdmitAutomatically, inherit.AdmitByLoop}, c.WorkloadAdmission),
			"--workload-admission=%s needs --workload-clusters", c.WorkloadAdmission))
}

// completeWorkloadWebhook also reads the name of the key's Secret if no URL is set: a release may need it.
func (c *Config) completeWorkloadWebhook() (err error) {
	if c.WorkloadWebhookURL == "" && c.WorkloadWebhookKeySecret == "" {
		return nil
	}
	c.WorkloadWebhookKeyName, err = namespacedName("--workload-webhook-key-secret", c.WorkloadWebhookKeySecret, "<namespace>/<name>")
	if c.WorkloadWebhookURL == "" {
		return err
	}
	base, baseErr := webhook.BaseURL(c.WorkloadWebhookURL)
	err = errors.Join(
		err,
		check(baseErr == nil, "--workload-webhook-url=%q: %w", c.WorkloadWebhookURL, baseErr),
		check(c.WorkloadWebhookPort >= 1 && c.WorkloadWebhookPort <= 65535 && c.WorkloadWebhookPort != c.WebhookPort,
			"--workload-webhook-port=%d: must be between 1 and 65535, and not --webhook-port", c.WorkloadWebhookPort),
		check(c.WebhookConfiguration != "", "--webhook-configuration must not be empty"))
	c.WorkloadWebhookURL = base
	return err
}

func (c *Config) completeCertificates() error {
	errs := []error{check(len(c.WebhookClientNames) == 0 || c.WebhookClientCAFile != "", "--webhook-client-names needs --webhook-client-ca-file")}
	if c.WebhookCertSecret == "" {
		return errs[0]
	}
	name, err := namespacedName("--webhook-cert-secret", c.WebhookCertSecret, "<namespace>/<name>")
	c.WebhookCertName = name
	errs = append(errs, err,
		check(c.WebhookConfiguration != "", "--webhook-cert-secret needs --webhook-configuration"),
		check(len(c.WebhookCertDNSNames) > 0, "--webhook-cert-secret needs --webhook-cert-dns-names"))
	for _, host := range c.WebhookCertDNSNames {
		isName := len(validation.IsDNS1123Subdomain(host)) == 0 || len(validation.IsWildcardDNS1123Subdomain(host)) == 0
		errs = append(errs, check(isName && net.ParseIP(host) == nil,
			"--webhook-cert-dns-names=%q: must be DNS names in lower case; a certificate for an IP address can only come from --webhook-cert-dir", host))
	}
	return errors.Join(errs...)
}

// check returns the error unless the condition holds.
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

// namespacedName parses a flag's value of the form <namespace>/<name>. allowed describes the allowed values.
func namespacedName(flag, value, allowed string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("%s=%q: must be %s", flag, value, allowed)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func compile(flag string, expressions []string) (compiled []*regexp.Regexp, err error) {
	for _, expression := range expressions {
		r, invalid := regexp.Compile(expression)
		err = errors.Join(err, check(invalid == nil, "%s: %w", flag, invalid))
		compiled = append(compiled, r)
	}
	return compiled, err
}

// Watches reports whether Heirloom handles the objects of a namespace.
func (c *Config) Watches(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// Watched returns the namespaces to list objects in; "" stands for all.
func (c *Config) Watched() []string {
	if len(c.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return c.Namespaces
}

// LeaderElectionID is the name of the leader's Lease. It differs between instances that share a management cluster with disjoint watch
// filters or namespaces. A filter is a label value, which may be no valid name of a Lease, so it is hashed.
func (c *Config) LeaderElectionID() string {
	part := c.WatchFilter
	if len(c.Namespaces) > 0 {
		part = strings.Join(c.Namespaces, ",") + "/" + part // no label value has a slash
	}
	if part == "" {
		return "leader-election-heirloom"
	}
	return fmt.Sprintf("leader-election-heirloom-%08x", crc32.ChecksumIEEE([]byte(part)))
}
