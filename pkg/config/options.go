// SPDX-License-Identifier: Apache-2.0

// Package config turns flags into a validated configuration. Nothing starts before the whole configuration is valid.
package config

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Options are the flags as they were given.
type Options struct {
	Kubeconfig, WatchFilter, ManagementCluster, HealthAddr string
	SyncPeriod, ShutdownDelay                              time.Duration
	KubeAPIQPS                                             float32
	KubeAPIBurst                                           int

	WorkloadAdmission, WorkloadWebhookURL, WorkloadWebhookKeySecret, WebhookConfiguration string
	WorkloadWebhookPort, ClusterCacheConcurrency, ClusterCacheClientBurst                 int
	ClusterCacheClientQPS                                                                 float32
	WorkloadClusters                                                                      bool

	WebhookHost, WebhookCertDir, WebhookCertSecret, WebhookClientCAFile string
	WebhookPort                                                         int
	WebhookCertDNSNames, WebhookClientNames                             []string

	LeaderElect                                                                bool
	LeaderElectNamespace                                                       string
	LeaderElectLeaseDuration, LeaderElectRenewDeadline, LeaderElectRetryPeriod time.Duration

	Namespaces, AdditionalSyncMachineLabels, AdditionalSyncMachineAnnotations, AdditionalProviderGroups, PerClusterSyncAllowed, NodeFacts []string

	TaintPropagation, Mode, Enrollment, WorkerRole    string
	NoExecute, NoExecuteClusters, PerClusterNoExecute string
	NoExecuteRate                                     float64
	NoExecuteDeadline, NoExecuteSoak                  time.Duration

	Diagnostics flags.ManagerOptions
	Logs        *logs.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Logs: logs.NewOptions()}
}

// AddFlags adds every flag. A flag that Cluster API's managers also have keeps its name, default and meaning, except for the rate of
// requests to workload clusters: Cluster API's default would hold up large clusters.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.addWatchFlags(fs)
	o.addWorkloadFlags(fs)
	o.addWebhookFlags(fs)
	o.addLeaderElectionFlags(fs)
	o.addRuleFlags(fs)
	flags.AddManagerOptions(fs, &o.Diagnostics)
	// Cluster API's own text lacks a space between two words.
	fs.Lookup("diagnostics-address").Usage = "The address the diagnostics endpoint binds to. " +
		"It serves metrics, pprof and the log level over HTTPS, with authentication and authorization; with --insecure-diagnostics, only metrics, over HTTP."
	// Cluster API's own text also explains how Go uses the list.
	fs.Lookup("tls-curve-preferences").Usage = "Comma-separated list of numeric Go crypto/tls CurveID values for the webhook server and metrics server. " +
		"If omitted, the default Go curves will be used."
	logsv1.AddFlags(o.Logs, fs)
}

// AddCleanupFlags adds the program's flags that select the objects of Heirloom and say how to reach them: a cleanup needs the same values.
func (o *Options) AddCleanupFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	o.AddFlags(all)
	for _, name := range []string{
		"kubeconfig", "kube-api-qps", "kube-api-burst", "namespace", "watch-filter", "management-cluster", "additional-provider-groups",
		"webhook-configuration", "workload-webhook-url", "workload-webhook-key-secret", "leader-elect-namespace",
		"clustercache-client-qps", "clustercache-client-burst", "workload-clusters",
	} {
		fs.AddFlag(all.Lookup(name))
	}
}

func (o *Options) addWatchFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"Path to a kubeconfig of the management cluster. If unspecified, the service account of the Pod is used, or $KUBECONFIG or ~/.kube/config outside of a cluster.")
	fs.StringSliceVar(&o.Namespaces, "namespace", nil,
		"List of namespaces that Heirloom watches. If unspecified, it watches all namespaces.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "",
		"Label value that an object must carry to inherit. The label key is always "+clusterv1.WatchLabel+". If unspecified, all objects inherit.")
	fs.StringVar(&o.ManagementCluster, "management-cluster", "",
		"<namespace>/<name> of the management cluster, if it is itself a Cluster. If unspecified, its Nodes inherit nothing.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"The maximum interval at which watched objects are reconciled (e.g. 15m).")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "The address the health endpoint binds to.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0,
		"Duration for which webhooks answer requests after SIGTERM. Each answer closes its connection, so that clients move to other replicas.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", 100,
		"Maximum queries per second from the client to the management cluster's API server for each kind of object.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", 200, "Maximum number of queries in one burst to the management cluster's API server.")
}

func (o *Options) addWorkloadFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.WorkloadClusters, "workload-clusters", true,
		"Connect to workload clusters. With false, Heirloom reads no kubeconfig, and skips the Nodes of workload clusters.")
	fs.StringVar(&o.WorkloadAdmission, "workload-admission", inherit.AdmitAutomatically,
		"How new Nodes of workload clusters get inherited entries, unless their Cluster has the label "+inherit.AdmissionLabel+": auto (policy if served, otherwise webhook if a URL is set), none (only the loop adds entries), webhook (see --workload-webhook-url) or policy (a MutatingAdmissionPolicy).")
	fs.StringVar(&o.WorkloadWebhookURL, "workload-webhook-url", "",
		"URL at which API servers of workload clusters reach --workload-webhook-port: https://<host>[:<port>][/<path>]. If unspecified, no webhook is registered in workload clusters.")
	fs.IntVar(&o.WorkloadWebhookPort, "workload-webhook-port", 9444,
		"The port the webhook server for workload clusters binds to. It serves nothing else.")
	fs.StringVar(&o.WorkloadWebhookKeySecret, "workload-webhook-key-secret", "",
		"<namespace>/<name> of the Secret with the key for webhook paths of workload clusters, which Heirloom creates. Required with --workload-webhook-url.")
	fs.StringVar(&o.WebhookConfiguration, "webhook-configuration", "heirloom",
		"Name of the installed MutatingWebhookConfiguration, which Heirloom copies to workload clusters. With --webhook-cert-secret, Heirloom publishes the CA there and in the ValidatingWebhookConfiguration of the same name.")
	fs.IntVar(&o.ClusterCacheConcurrency, "clustercache-concurrency", 100,
		"Number of workload clusters to connect to, or probe, at the same time.")
	fs.Float32Var(&o.ClusterCacheClientQPS, "clustercache-client-qps", 500,
		"Maximum queries per second from the client to the API server of each workload cluster.")
	fs.IntVar(&o.ClusterCacheClientBurst, "clustercache-client-burst", 1000,
		"Maximum number of queries in one burst to the API server of each workload cluster.")
}

func (o *Options) addWebhookFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.WebhookHost, "webhook-host", "", "The address the webhook server binds to (default: all).")
	fs.IntVar(&o.WebhookPort, "webhook-port", 9443, "The port the webhook server binds to.")
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's certificate and key, tls.crt and tls.key. They are reloaded when they change. With --webhook-cert-secret, Heirloom only writes tls.crt there.")
	fs.StringVar(&o.WebhookCertSecret, "webhook-cert-secret", "",
		"<namespace>/<name> of the Secret for the CA and serving certificate that Heirloom creates, renews and publishes in both webhook configurations of --webhook-configuration. If unspecified, the certificate comes from --webhook-cert-dir.")
	fs.StringSliceVar(&o.WebhookCertDNSNames, "webhook-cert-dns-names", nil,
		"List of DNS names for the certificate in --webhook-cert-secret.")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", "",
		"Path to CA certificates, reloaded when the file changes. If specified, --webhook-port accepts only clients with a certificate of these CAs.")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil,
		"List of accepted common names of client certificates. If unspecified, all names are accepted.")
}

func (o *Options) addLeaderElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", false,
		"Elect a leader among replicas. Webhooks answer from every replica; the resync loop runs on the leader.")
	fs.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "",
		"Namespace of the leader election Lease. If unspecified, the namespace of the Pod is used; required outside of a cluster and for a cleanup.")
	fs.DurationVar(&o.LeaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"Interval at which non-leader candidates will wait to force acquire leadership.")
	fs.DurationVar(&o.LeaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"Duration that the leader will retry refreshing leadership before giving up.")
	fs.DurationVar(&o.LeaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"Duration that candidates wait between tries of actions.")
}

func (o *Options) addRuleFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.AdditionalSyncMachineLabels, "additional-sync-machine-labels", nil,
		"List of regexes (not anchored) to select an additional set of labels to sync from a Machine to its Node.")
	fs.StringSliceVar(&o.AdditionalSyncMachineAnnotations, "additional-sync-machine-annotations", nil,
		"List of regexes (not anchored) to select an additional set of annotations to sync from a Machine to its Node.")
	fs.StringSliceVar(&o.PerClusterSyncAllowed, "per-cluster-sync-allowed", []string{inherit.SyncAnyKey},
		"List of label and annotation keys, and of prefixes that end with *, that the annotations "+inherit.SyncLabelsAnnotation+" and "+inherit.SyncAnnotationsAnnotation+
			" of a Cluster or a ClusterClass may name for Nodes. * alone stands for all keys outside kubernetes.io, k8s.io and their subdomains. If empty, these annotations have no effect.")
	fs.StringArrayVar(&o.NodeFacts, "node-fact", nil,
		"Fact that becomes a label of Nodes, <Kind>.<group>:<field>=<label>: a field, such as spec.instanceType, an element of a list, spec.disks[0].type, or a label, metadata.labels['rack'], "+
			"of Machines or of a provider's kind. Or a JSON object with the keys of the chart's value facts. Can be repeated.")
	fs.StringSliceVar(&o.AdditionalProviderGroups, "additional-provider-groups", nil,
		"List of API groups of infrastructure and bootstrap providers whose objects inherit like their Machines, in addition to "+
			inherit.InfrastructureGroup+" and "+inherit.BootstrapGroup+".")
	fs.Float64Var(&o.NoExecuteRate, "no-execute-rate", 1,
		"Rate limit: existing Nodes per Cluster per minute that get a NoExecute taint. "+
			"A MachineDeployment, control plane or MachinePool taints at most a tenth of its Nodes per minute, rounded up. 0 means no limit. New Nodes never wait.")
	fs.StringVar(&o.NoExecute, "no-execute", inherit.NoExecuteBudgets,
		"How existing Nodes get a NoExecute taint when it is their turn: pace, at once, or budgets, when all Pods that the taint would evict have left. "+
			"Until then the taint has the effect NoSchedule, and these Pods are evicted through the Eviction API, which respects PodDisruptionBudgets.")
	fs.StringVar(&o.NoExecuteClusters, "no-execute-clusters", "10%",
		"Number of Clusters whose existing Nodes get NoExecute taints at a time, or a percentage of all Clusters; at least 1. "+
			"Clusters begin in the order of their label "+inherit.WaveLabel+", then by name. 100% means no limit.")
	fs.DurationVar(&o.NoExecuteSoak, "no-execute-soak", 5*time.Minute,
		"How long all Nodes of a Cluster must have had their NoExecute taints before another Cluster begins in its place, and before the next wave begins.")
	fs.StringVar(&o.PerClusterNoExecute, "per-cluster-no-execute", string(inherit.PerClusterGentler),
		"Settings for NoExecute taints that labels of a Cluster or a ClusterClass may choose: none, gentler (only settings that evict Pods more slowly), or any.")
	fs.DurationVar(&o.NoExecuteDeadline, "no-execute-deadline", 0,
		"With --no-execute=budgets, how long a Node waits for its Pods (e.g. 1h). 0 means that it waits until all have left.")
	fs.StringVar(&o.WorkerRole, "worker-role", "",
		"Role of all Nodes outside of control planes, as the label node-role.kubernetes.io/<role>. If unspecified, these Nodes get no role.")
	fs.StringVar(&o.Mode, "mode", string(inherit.Enforce),
		"Mode for decisions: enforce writes them, except in Clusters whose label "+inherit.ModeLabel+", or whose ClusterClass's, says observe; observe writes in no Cluster, and only reports, as metrics and Events.")
	fs.StringVar(&o.Enrollment, "enrollment", enrollAll,
		"Clusters that Heirloom handles: all, or labeled (only Clusters with the label "+inherit.ModeLabel+" on the Cluster or its ClusterClass).")
	fs.StringVar(&o.TaintPropagation, "cluster-api-taint-propagation", auto,
		"Whether Cluster API propagates taints itself (its feature gate MachineTaintPropagation): auto, enabled or disabled. With auto, Heirloom detects it.")
}
