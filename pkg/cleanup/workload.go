// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

const (
	// atATime is the number of workload clusters that are cleaned up at a time. promptly and later are the timeouts of the two attempts to
	// delete the objects that admit Nodes in a workload cluster: clusters that answer promptly do not wait for slow clusters. So Helm's hook
	// ends within its five minutes even if no cluster of a fleet answers. nodesTimeout limits the time for the Nodes of a workload cluster.
	atATime         = 100
	promptly, later = 2 * time.Second, 8 * time.Second
	nodesTimeout    = 5 * time.Minute
	// byHand deletes the objects that admit Nodes in a workload cluster. It has two commands, because kubectl fails as a whole if a kind is
	// not served.
	byHand = "kubectl delete --ignore-not-found mutatingwebhookconfiguration/" + webhook.ObjectName +
		" configmap/" + policy.Name + " --namespace " + policy.Namespace + "; kubectl delete --ignore-not-found mutatingadmissionpolicybinding/" +
		policy.Name + " mutatingadmissionpolicy/" + policy.Name
)

// cleanUpWorkloads cleans up the workload clusters that Heirloom may have reached, and reports the clusters that it skips. A cluster that
// cannot be reached does not delay the others.
func (s *session) cleanUpWorkloads(ctx context.Context) {
	if !s.Config.WorkloadClusters {
		s.note("workload clusters: skipped, because of --workload-clusters=false")
		return
	}
	var clusters []webhook.Identity
	s.failed(eachOf(ctx, s.management, &clusterv1.ClusterList{}, s.Config.Watched(), func(c *clusterv1.Cluster) {
		name := client.ObjectKeyFromObject(c)
		switch {
		case s.Config.WatchFilter != "" && c.Labels[clusterv1.WatchLabel] != s.Config.WatchFilter:
		case name == s.Config.ManagementClusterKey: // its Nodes are in the management cluster
		case c.DeletionTimestamp != nil:
			s.note("workload cluster %s: skipped, it is being deleted", name)
		case !ptr.Deref(c.Status.Initialization.InfrastructureProvisioned, false):
			s.note("workload cluster %s: skipped, it has never been provisioned", name)
		default:
			clusters = append(clusters, webhook.IdentityOf(c))
		}
	}))
	theirs := ctrl.LoggerInto(ctx, logr.Discard()) // an API server may answer with any number of warnings
	for _, timeout := range []time.Duration{promptly, later} {
		var workers errgroup.Group
		workers.SetLimit(atATime)
		var slow []webhook.Identity
		for _, c := range clusters {
			workers.Go(func() error {
				server, err := s.withdraw(theirs, c, timeout)
				if err != nil && timeout == promptly {
					s.mu.Lock()
					defer s.mu.Unlock()
					slow = append(slow, c)
					return nil
				}
				s.cleanUpWorkload(theirs, c, server, err)
				return nil
			})
		}
		_ = workers.Wait() // they report for themselves
		clusters = slow
	}
}

// cleanUpWorkload cleans up the Nodes of a workload cluster after withdraw has succeeded, or reports the error of withdraw.
func (s *session) cleanUpWorkload(ctx context.Context, c webhook.Identity, server cluster, err error) {
	switch {
	case err != nil && s.OnlyWorkloadClusters:
		s.left(ctx, c, err)
	case err != nil:
		s.failed(fmt.Errorf("workload cluster %s: %w", c, err))
	case !s.OnlyWorkloadClusters:
		ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
		defer cancel()
		s.nodes(ctx, server, func(*corev1.Node) bool { return true })
	}
}

// withdraw deletes the objects that admit Nodes in a workload cluster. It returns after the timeout at the latest, even during discovery,
// which takes no context.
func (s *session) withdraw(ctx context.Context, c webhook.Identity, timeout time.Duration) (cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		server cluster
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		server, err := s.remove(ctx, c)
		answers <- answer{server, err}
	}()
	select {
	case a := <-answers:
		return a.server, a.err
	case <-ctx.Done():
		return cluster{}, ctx.Err()
	}
}

func (s *session) remove(ctx context.Context, identity webhook.Identity) (cluster, error) {
	reached, err := s.Workload(ctx, identity.NamespacedName)
	if err != nil {
		return cluster{}, webhook.OwnError{Err: err}
	}
	server := cluster{Client: reached, session: s, where: " in workload cluster " + identity.String()}
	var errs []error
	for _, way := range []workload.Way{&webhook.Registrar{BaseURL: s.Config.WorkloadWebhookURL}, workload.ByPolicy{Installed: s.Config.WebhookConfiguration}} {
		switch _, err := way.Remove(ctx, server, identity); {
		case errors.Is(err, webhook.ErrForeign):
			s.note("workload cluster %s: MutatingWebhookConfiguration %s stays: %v; delete it by hand if nothing answers at its URL",
				identity, webhook.ObjectName, err)
		case errors.Is(err, policy.ErrForeign):
			s.note("workload cluster %s: its objects %s stay: %v; delete them by hand if it no longer exists", identity, policy.Name, err)
		case !apierrors.IsForbidden(err): // a user without the right to read these objects cannot have created them
			errs = append(errs, err)
		}
	}
	return server, errors.Join(errs...)
}

// left reports that objects may be left in a workload cluster, and how to delete them. The log of a successful hook may be gone soon, so
// left also records an Event on the Cluster.
func (s *session) left(ctx context.Context, c webhook.Identity, cause error) {
	say := func(why error) string {
		return inherit.Shorten(fmt.Sprintf(
			"objects that admit Nodes could not be deleted. To delete them by hand, with the kubeconfig of the workload cluster: %s. The reason: %v", byHand, why), longest)
	}
	s.note("workload cluster %s: %s", c, say(cause))
	if s.DryRun {
		return
	}
	now := metav1.NowMicro()
	err := s.management.Create(ctx, &eventsv1.Event{
		// The name that a recorder of client-go gives.
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("%s.%x", c.Name, now.UnixNano())},
		EventTime:  now, ReportingController: "heirloom", ReportingInstance: "heirloom-cleanup",
		Type: corev1.EventTypeWarning, Reason: "WorkloadAdmissionLeft", Action: "Remove", Note: say(workload.Told(cause)),
		Regarding: corev1.ObjectReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
		},
	})
	if err != nil {
		s.note("workload cluster %s: no Event was written: %v", c, err)
	}
}
