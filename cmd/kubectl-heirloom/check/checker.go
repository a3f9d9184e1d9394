// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/x509"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

const (
	// quick bounds a check, fleetwide one that looks at all Clusters, and forCluster what is read from one workload cluster.
	quick      = 30 * time.Second
	fleetwide  = 5 * time.Minute
	forCluster = 15 * time.Second
)

// Checker runs the checks.
type Checker struct {
	// Client is the management cluster's.
	Client  client.Client
	Schemas snapshot.Schemas
	// Kubernetes returns the version of the management cluster's API server.
	Kubernetes func() (*version.Info, error)
	// Namespace is the one in which Heirloom is installed; empty if it may be any.
	Namespace string
	// Settings returns the server's settings.
	Settings func(context.Context) (settings.Settings, error)
	// Workload returns a client of a Cluster's workload cluster.
	Workload func(context.Context, types.NamespacedName) (client.Client, error)
	// Served returns the certificates that a server serves: its own, and then those that sign it.
	Served func(ctx context.Context, address, serverName string) ([]*x509.Certificate, error)
	// Plugin is this program's version.
	Plugin string
	Now    func() time.Time
}

// Check is one question.
type Check struct {
	// Name is a word, Asks the question.
	Name, Asks string

	limit time.Duration
	run   func(context.Context, *world) Result
}

// Checks returns all checks, in the order in which they are reported.
func Checks() []Check {
	return []Check{
		{"installed", "Is Heirloom running, with all its replicas and a leader?", quick, installed},
		{"versions", "Do the versions of plugin, server, Cluster API and Kubernetes go together?", quick, versions},
		{"registered", "Are the webhooks registered as the chart says?", quick, registered},
		{"certificates", "Is the serving certificate valid, and signed by the CA that the webhooks are registered with?", quick, certificates},
		{"mutation", "Does the API server call the mutating webhook, and does it answer?", quick, mutation},
		{"validation", "Does the API server call the validating webhook, and does it answer?", quick, validation},
		{"cluster-api", "Do Cluster API's feature gate, flags and watch filter agree with Heirloom's?", quick, clusterAPI},
		{"workload-clusters", "Can the workload clusters be reached?", fleetwide, workloadClusters},
		{"nodes", "Is each Node some Machine's, and does it have all that it inherits?", fleetwide, nodes},
		{"machines", "Which Machines inherit nothing, because they are paused or opted out?", fleetwide, machines},
		{"others", "Which other webhooks and controllers undo what Heirloom does?", fleetwide, others},
	}
}

// Run runs all checks, each on its own.
func (c *Checker) Run(ctx context.Context) *Report {
	w := c.world(ctx)
	checks := Checks()
	report := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "CheckReport"},
		Checks:   make([]Result, len(checks)),
	}
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() {
			result, err := within(ctx, check.limit, func(ctx context.Context) (Result, error) { return check.run(ctx, w), nil })
			if err != nil {
				result = unknown("There was no answer within %s.", check.limit)
			}
			result.Name = check.Name
			report.Checks[i] = result
		})
	}
	all.Wait()
	return report
}

// within calls a function, and does not wait for it any longer than that.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call(ctx)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// world is what checks read, each part once.
type world struct {
	*Checker
	snapshot     *snapshot.Snapshot
	settings     func() (settings.Settings, error)
	installation func() (*installation, error)
	fleet        func() (*fleet, error)
}

func (c *Checker) world(ctx context.Context) *world {
	w := &world{Checker: c, snapshot: snapshot.New(c.Client, c.Schemas)}
	w.settings = sync.OnceValues(func() (settings.Settings, error) { return c.Settings(ctx) })
	w.installation = sync.OnceValues(func() (*installation, error) {
		known, err := w.settings()
		if err != nil {
			known = settings.Settings{} // other checks report the error
		}
		return findInstallation(ctx, c.Client, c.Namespace, known)
	})
	w.fleet = sync.OnceValues(func() (*fleet, error) { return w.walkFleet(ctx) })
	return w
}
