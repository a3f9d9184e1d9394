// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/kept"
	"github.com/heirloom-dev/heirloom/pkg/providers"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// shutdownTimeout is shorter than the chart's terminationGracePeriodSeconds, so that the program ends by itself.
const shutdownTimeout = 8 * time.Second

// workers is how many objects of a kind are handled at a time.
const workers = 10

// newManager returns the manager and, because it would wait for them, beside it the cache of providers' kinds. The manager's
// client reads from both.
func newManager(restConfig *rest.Config, c *config.Config, keep *kept.Shared) (ctrl.Manager, *providers.Cache, error) {
	scheme, err := newScheme(clusterv1.GroupVersion)
	if err != nil {
		return nil, nil, err
	}
	var kinds *providers.Cache
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Cache:  cacheOptions(c, keep),
		NewCache: func(restConfig *rest.Config, options cache.Options) (cache.Cache, error) {
			var err error
			if kinds, err = providers.New(restConfig, options); err != nil {
				return nil, err
			}
			return cache.New(restConfig, options)
		},
		NewClient: func(restConfig *rest.Config, options client.Options) (client.Client, error) {
			options.Cache.Unstructured = true
			options.Cache.Reader = providers.Reader{Reader: options.Cache.Reader, Providers: kinds}
			return client.New(restConfig, options)
		},
		Metrics:                       c.Metrics,
		HealthProbeBindAddress:        c.HealthAddr,
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              c.LeaderElectionID(),
		LeaderElectionNamespace:       c.LeaderElectNamespace,
		LeaseDuration:                 &c.LeaderElectLeaseDuration,
		RenewDeadline:                 &c.LeaderElectRenewDeadline,
		RetryPeriod:                   &c.LeaderElectRetryPeriod,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    ctrlconfig.Controller{MaxConcurrentReconciles: workers},
		GracefulShutdownTimeout:       ptr.To(shutdownTimeout),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := mgr.Add(kinds); err != nil {
		return nil, nil, fmt.Errorf("adding the cache of providers' kinds: %w", err)
	}
	return mgr, kinds, nil
}

// newScheme registers the types under the version of Cluster API that the API server serves.
func newScheme(version schema.GroupVersion) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering Kubernetes' types: %w", err)
	}
	capi.AddToScheme(scheme, version)
	return scheme, nil
}

// cacheOptions keeps in memory only what the rules read.
func cacheOptions(c *config.Config, keep *kept.Shared) cache.Options {
	options := cache.Options{
		SyncPeriod:       &c.SyncPeriod,
		DefaultTransform: keep.Object,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: keep.Node}},
	}
	if key := c.WorkloadWebhookKeyName; key.Name != "" {
		options.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{
			key.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)},
		}}
	}
	if c.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{c.Namespace: {}}
		// The class of a Cluster may be in another namespace.
		options.ByObject[&capi.ClusterClass{}] = cache.ByObject{Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}}
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
	return restConfig, nil
}
