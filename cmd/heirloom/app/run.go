// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// discoveryTimeout bounds the requests for schemas and kinds.
const discoveryTimeout = 30 * time.Second

// unknownFor is how long a kind that the API server does not serve counts as unknown in admission.
const unknownFor = 5 * time.Second

// run wires everything and blocks until a while after ctx is done.
func run(ctx context.Context, c *config.Config) error {
	signalled := ctx
	ctx, end := drain(ctx, c.ShutdownDelay)
	defer end()
	ctrl.Log.Info("Starting Heirloom", "version", version.String())
	limitMemory(memlimit.FromCgroup)
	restConfig, err := restConfigOf(c)
	if err != nil {
		return err
	}
	served, err := newCertificate(c)
	if err != nil {
		return err
	}
	if err := awaitClusterAPI(signalled, restConfig, c.HealthAddr); err != nil || signalled.Err() != nil {
		return err
	}
	mgr, err := newManager(restConfig, c, served)
	if err != nil {
		return err
	}
	if err := owners.Prepare(ctx, mgr.GetCache(), c.ManagementClusterKey.Name != ""); err != nil {
		return err
	}
	if err := addWebhooksAndLoop(ctx, signalled.Done(), mgr, c, served); err != nil {
		return err
	}
	if err := errors.Join(addChecks(mgr, served), addMemoryReturn(mgr)); err != nil {
		return err
	}
	return start(ctx, mgr)
}

// start blocks until ctx is done and everything has ended. Until its caches are filled, a manager cannot be stopped: it keeps
// waiting for them, forever if a right or a CustomResourceDefinition is missing. It has nothing to finish either, because a
// program that is not ready gets no requests, so it is left behind.
func start(ctx context.Context, mgr ctrl.Manager) error {
	ended, filled := make(chan error, 1), make(chan struct{})
	go func() { ended <- mgr.Start(ctx) }()
	go func() {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			close(filled)
		}
	}()
	var err error
	select {
	case err = <-ended:
	case <-filled:
		err = <-ended
	case <-ctx.Done():
		ctrl.Log.Info("Told to stop before the caches were filled")
	}
	if err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
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

// addPolicy returns where webhooks and loop read the rules' options from, and starts the detection of options that the operator
// left to Heirloom.
func addPolicy(mgr ctrl.Manager, c *config.Config) (policy func() inherit.Policy, changes func() <-chan event.GenericEvent, err error) {
	gate := &capabilities.Gate{Client: mgr.GetClient(), Interval: c.SyncPeriod}
	if !c.DetectTaintPropagation {
		return func() inherit.Policy { return c.Rules }, gate.Subscribe, nil // it is not started, so nothing changes
	}
	if err := mgr.Add(gate); err != nil {
		return nil, nil, fmt.Errorf("adding the taint propagation detector: %w", err)
	}
	return func() inherit.Policy {
		policy := c.Rules
		policy.ClusterAPITaints = gate.State()
		return policy
	}, gate.Subscribe, nil
}

// newDiscovery returns a client whose requests end by themselves: they have no context to do so.
func newDiscovery(mgr ctrl.Manager) (discovery.DiscoveryInterface, error) {
	restConfig := rest.CopyConfig(mgr.GetConfig())
	restConfig.Timeout = discoveryTimeout
	client, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	return client, nil
}

// addSchemas starts the reader of the schemas of control planes.
func addSchemas(mgr ctrl.Manager, c *config.Config, discoveryClient discovery.DiscoveryInterface) (*capabilities.Schemas, error) {
	schemas := &capabilities.Schemas{Client: discoveryClient.OpenAPIV3(), Interval: c.SyncPeriod, UnknownFor: unknownFor}
	if err := mgr.Add(schemas); err != nil {
		return nil, fmt.Errorf("adding the reader of schemas: %w", err)
	}
	return schemas, nil
}

// addMetrics adds Heirloom's own metrics to those of controller-runtime and of the ClusterCache.
func addMetrics(served *certificate) (*metrics.Metrics, error) {
	counters, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	return counters, counters.Certificate(served.NotAfter)
}

func addWebhooksAndLoop(
	ctx context.Context, draining <-chan struct{}, mgr ctrl.Manager, c *config.Config, served *certificate,
) error {
	policy, policyChanges, err := addPolicy(mgr, c)
	if err != nil {
		return err
	}
	counters, err := addMetrics(served)
	if err != nil {
		return err
	}
	discoveryClient, err := newDiscovery(mgr)
	if err != nil {
		return err
	}
	schemas, err := addSchemas(mgr, c, discoveryClient)
	if err != nil {
		return err
	}
	recorder := controllers.Brief(mgr.GetEventRecorder("heirloom"))
	clusterCache, err := addClusterCache(ctx, mgr, c, recorder)
	if err != nil {
		return err
	}
	registrar, err := addRegistration(ctx, mgr, c)
	if err != nil {
		return err
	}
	if err := served.add(mgr, registrar); err != nil {
		return err
	}
	live, err := newReader(mgr)
	if err != nil {
		return err
	}
	// A kind that is unknown is asked for each time: the loop would wait for minutes.
	chain := owners.Chain{
		Cache: mgr.GetCache(), Live: live, Mapper: &owners.Kinds{Discovery: discoveryClient, KnownFor: c.SyncPeriod}, Layout: schemas.ControlPlane,
	}
	admission := chain
	admission.AskMissing, admission.Count = true, counters.OwnerLookup
	admission.Mapper = &owners.Kinds{Discovery: discoveryClient, UnknownFor: unknownFor, KnownFor: c.SyncPeriod}
	dependencies := webhooks.Dependencies{
		Chain: &admission, Metrics: counters, Namespace: c.Namespace, Policy: policy, Draining: draining,
		ManagementCluster: c.ManagementClusterKey,
	}
	if err := addWebhooks(mgr, c, dependencies); err != nil {
		return err
	}
	if err := addWorkloadServer(mgr, c, served, dependencies, registrar); err != nil {
		return err
	}
	byPolicy := workload.ByPolicy{Machines: chain.EffectiveMachines, Policy: policy}
	return controllers.Setup(mgr, &controllers.Dependencies{
		ManagementCluster: c.ManagementClusterKey,
		Client:            mgr.GetClient(), Live: mgr.GetAPIReader(), Chain: &chain, Metrics: counters, SchemaChanges: schemas.Subscribe,
		Workloads: clusterCache, Admission: nodeAdmission(c, byPolicy, registrar), ProviderGroups: c.ProviderGroups, NoExecuteRate: c.NoExecuteRate, Namespace: c.Namespace,
		Recorder: recorder, Policy: policy, PolicyChanges: policyChanges,
	})
}

// addWebhooks adds the webhooks that the management cluster's API servers call, and says who else may call them.
func addWebhooks(mgr ctrl.Manager, c *config.Config, dependencies webhooks.Dependencies) error {
	webhooks.Register(mgr.GetWebhookServer(), dependencies)
	limited, ok := mgr.GetWebhookServer().(*server)
	if !ok {
		return fmt.Errorf("the webhook server is a %T", mgr.GetWebhookServer())
	}
	rejected := dependencies.Metrics.AdmissionRejected(metrics.ManagementServer)
	limited.refused = func() { rejected(metrics.TooManyConnections) }
	accepted, err := newClients(c)
	if err != nil || accepted == nil {
		return err
	}
	accepted.guard(limited, rejected)
	if err := mgr.Add(accepted); err != nil {
		return fmt.Errorf("adding the watcher of the CAs of the webhooks' clients: %w", err)
	}
	return nil
}

// addChecks makes the probes tell the truth: ready means that the caches are filled, the webhook server answers and the
// certificate that it serves is valid. The caches are the manager's, which hold what admission needs in any case. Kinds of
// providers are not among them: one that cannot be listed would leave no replica ready to answer for the others.
func addChecks(mgr ctrl.Manager, served *certificate) error {
	synced := func(req *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(req.Context()) {
			return errors.New("the informer caches are not filled yet")
		}
		return nil
	}
	started := mgr.GetWebhookServer().StartedChecker()
	return errors.Join(
		mgr.AddHealthzCheck("webhook", served.once(started)),
		mgr.AddReadyzCheck("webhook", started),
		mgr.AddReadyzCheck("caches", synced),
		mgr.AddReadyzCheck("certificate", served.Check),
	)
}
