// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// shutdownTimeout is shorter than the chart's terminationGracePeriodSeconds, so that the program ends by itself.
const shutdownTimeout = 8 * time.Second

// newManager returns the manager. Its client also reads the kinds of providers from the cache.
func newManager(restConfig *rest.Config, c *config.Config, changes ...func(*ctrl.Options)) (ctrl.Manager, error) {
	options := ctrl.Options{
		Scheme:                        newScheme(),
		Cache:                         cacheOptions(c),
		Client:                        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // see addDiagnostics
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              c.LeaderElectionID(),
		LeaderElectionNamespace:       c.LeaderElectNamespace,
		LeaseDuration:                 &c.LeaderElectLeaseDuration,
		RenewDeadline:                 &c.LeaderElectRenewDeadline,
		RetryPeriod:                   &c.LeaderElectRetryPeriod,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    ctrlconfig.Controller{MaxConcurrentReconciles: 10}, // objects of each kind
		GracefulShutdownTimeout:       ptr.To(shutdownTimeout),
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}

// newScheme returns a scheme with the types of Kubernetes and Cluster API.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	return scheme
}

// cacheOptions limits the cache to the fields that the rules read.
func cacheOptions(c *config.Config) cache.Options {
	options := cache.Options{
		SyncPeriod:       &c.SyncPeriod,
		DefaultTransform: owners.Transform(c.Rules),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: owners.TransformNode(c.Rules)}},
	}
	if key := c.WorkloadWebhookKeyName; key.Name != "" {
		options.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{
			key.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)},
		}}
	}
	if len(c.Namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range c.Namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
		// The class of a Cluster may be in another namespace.
		options.ByObject[&clusterv1.ClusterClass{}] = cache.ByObject{Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}}
	}
	return options
}

func restConfigOf(c *config.Config) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	restConfig, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig of the management cluster: %w", err)
	}
	restConfig.QPS, restConfig.Burst = c.KubeAPIQPS, c.KubeAPIBurst
	restConfig.UserAgent = "heirloom/" + version.String()
	return restConfig, countRequests(restConfig)
}
