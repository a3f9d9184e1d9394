// SPDX-License-Identifier: Apache-2.0

// Package cli holds the parts that all commands of the plugin share: the connection to the management cluster and to workload clusters, the
// server's settings, output, progress and exit codes.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
)

// Factory gives a command the clients and settings that its flags select.
type Factory struct {
	genericiooptions.IOStreams
	Config   *genericclioptions.ConfigFlags
	Settings settings.Flags
	// ManagementCluster is <namespace>/<name>, or empty for the server's setting; Color is auto, always or never.
	ManagementCluster, WorkloadKubeconfig, Color string
	Verbosity                                    int
}

// Management is the management cluster's API server.
type Management struct {
	client.Client
	REST    *rest.Config
	Schemas *capabilities.Schemas
	// Cluster is the Cluster whose Nodes live in this API server, or empty. ReadSettings sets it.
	Cluster types.NamespacedName
	// LeavesWorkloads says that the server skips the Nodes of workload clusters.
	LeavesWorkloads bool
}

// ErrSkipped says that Heirloom does not handle the Nodes of a workload cluster.
var ErrSkipped = errors.New("the server skips the Nodes of workload clusters (--workload-clusters=false)")

// Validate checks the flags, before anything is read.
func (f *Factory) Validate() error {
	if !slices.Contains([]string{"auto", "always", "never"}, f.Color) {
		return fmt.Errorf("--color=%q: must be auto, always or never", f.Color)
	}
	if f.Verbosity > 0 {
		klog.ClearLogger() // SilenceLogs has set it
		if err := new(klog.Level).Set(strconv.Itoa(f.Verbosity)); err != nil {
			return fmt.Errorf("-v: %w", err)
		}
	}
	if f.ManagementCluster != "" {
		_, err := ParseCluster("--management-cluster", f.ManagementCluster)
		return err
	}
	return nil
}

// Namespace returns the namespace of --namespace or of the kubeconfig's context.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("finding the namespace in the kubeconfig: %w", err)
	}
	return namespace, nil
}

// Management connects to the management cluster. It fails if the API server does not serve Cluster API.
func (f *Factory) Management() (*Management, error) {
	restConfig, err := f.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	restConfig.UserAgent = "kubectl-heirloom/" + version.String()
	restConfig.QPS, restConfig.Burst = -1, -1 // API Priority and Fairness limits the plugin, as it does kubectl
	restConfig.WarningHandler = rest.NewWarningWriter(f.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	mapper, err := f.Config.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	var unreached *url.Error
	if err := capabilities.ClusterAPI(mapper); errors.As(err, &unreached) {
		return nil, unreached
	} else if err != nil {
		return nil, fmt.Errorf("looking for Cluster API at %s (use --context or --kubeconfig for another cluster): %w", restConfig.Host, err)
	}
	scheme := runtime.NewScheme()
	registered := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme))
	discovery, err := f.Config.ToDiscoveryClient()
	live, wrong := client.New(restConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err := errors.Join(registered, err, wrong); err != nil {
		return nil, fmt.Errorf("making clients: %w", err)
	}
	return &Management{Client: live, REST: restConfig, Schemas: &capabilities.Schemas{Client: discovery.OpenAPIV3()}}, nil
}

// ReadSettings returns the server's settings. --management-cluster takes precedence over the server's setting.
func (f *Factory) ReadSettings(ctx context.Context, m *Management) (settings.Settings, error) {
	defer f.Progress("Reading the settings of Heirloom and of Cluster API")()
	read, err := f.Settings.Read(ctx, m)
	if err == nil && f.ManagementCluster != "" {
		read.Config.ManagementClusterKey, err = ParseCluster("--management-cluster", f.ManagementCluster)
	}
	if err != nil {
		return settings.Settings{}, err
	}
	m.Cluster, m.LeavesWorkloads = read.Config.ManagementClusterKey, !read.Config.WorkloadClusters
	return read, nil
}

// workloadTimeout is how long a workload cluster may take for an answer, unless --request-timeout is set.
const workloadTimeout = 10 * time.Second

// Workload returns a client for a Cluster's workload cluster, which knows the kinds of Kubernetes. For the management cluster itself, it
// returns the client of the management cluster. Call ReadSettings first.
func (f *Factory) Workload(ctx context.Context, m *Management, cluster types.NamespacedName) (client.Client, error) {
	if cluster == m.Cluster {
		return m.Client, nil
	}
	if m.LeavesWorkloads {
		return nil, ErrSkipped
	}
	restConfig, err := f.workloadConfig(ctx, m, cluster)
	if err != nil {
		return nil, err
	}
	workload, err := client.New(restConfig, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to workload cluster %s: %w", cluster, err)
	}
	return workload, nil
}

func (f *Factory) workloadConfig(ctx context.Context, m *Management, cluster types.NamespacedName) (restConfig *rest.Config, err error) {
	if f.WorkloadKubeconfig == "" {
		restConfig, err = connect.RESTConfig(ctx, m, cluster)
	} else if restConfig, err = clientcmd.BuildConfigFromFlags("", f.WorkloadKubeconfig); err != nil {
		err = fmt.Errorf("--workload-kubeconfig=%q: %w", f.WorkloadKubeconfig, err)
	}
	if err != nil {
		return nil, err
	}
	restConfig.UserAgent, restConfig.QPS, restConfig.Burst = m.REST.UserAgent, -1, -1
	restConfig.WarningHandler = m.REST.WarningHandler
	restConfig.Timeout = cmp.Or(m.REST.Timeout, workloadTimeout)
	return restConfig, nil
}

// ParseCluster reads "<namespace>/<name>", the value of a flag.
func ParseCluster(flag, s string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%s=%q: must be <namespace>/<name>", flag, s)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// quiet is how long a step may take before the command reports the step.
const quiet = time.Second

// Progress says on standard error what a command is doing, if it takes longer than quiet. Call the result at the end.
func (f *Factory) Progress(format string, args ...any) (done func()) {
	timer := time.AfterFunc(quiet, func() { _, _ = fmt.Fprintf(f.ErrOut, format+" …\n", args...) })
	return func() { timer.Stop() }
}

// SilenceLogs keeps logs of the Kubernetes libraries off standard error: an error that stops a command is printed once.
func SilenceLogs() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(klog.Background())
}
