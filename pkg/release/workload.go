// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// workloads releases what is in workload clusters. One that cannot be reached holds up no other.
func (s *session) workloads(ctx context.Context, keys *webhook.Store) {
	clusters, err := s.clusters(ctx, s.report.note)
	if err != nil {
		s.report.failed(err)
		return
	}
	registrar := s.registrar(keys)
	s.eachCluster(clusters, func(cluster *unstructured.Unstructured) {
		identity := webhook.IdentityOf(cluster)
		if err := s.workload(ctx, identity, registrar); err != nil {
			s.report.failed(fmt.Errorf("workload cluster %s: %w", identity, err))
		}
	})
}

func (s *session) registrar(keys *webhook.Store) *webhook.Registrar {
	return &webhook.Registrar{Management: s.management, Installed: s.WebhookConfiguration, BaseURL: s.WorkloadWebhookURL, Keys: keys}
}

func (s *session) eachCluster(clusters []*unstructured.Unstructured, do func(*unstructured.Unstructured)) {
	var workers errgroup.Group
	workers.SetLimit(s.Concurrency)
	for _, cluster := range clusters {
		workers.Go(func() error {
			do(cluster)
			return nil
		})
	}
	_ = workers.Wait() // they report for themselves
}

// clusters returns the Clusters whose workload clusters Heirloom has reached, and says which it passes over.
func (s *session) clusters(ctx context.Context, say func(format string, args ...any)) ([]*unstructured.Unstructured, error) {
	gvk, err := s.servedKind("Cluster")
	if err != nil || gvk.Empty() {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	var clusters []*unstructured.Unstructured
	err = eachOf(ctx, s.management, list, s.Namespace, func(object client.Object) error {
		cluster, ok := object.(*unstructured.Unstructured)
		key := client.ObjectKeyFromObject(object)
		switch {
		case !ok || key == s.ManagementCluster: // its Nodes are those of the management cluster
		case s.WatchFilter != "" && object.GetLabels()[clusterv1.WatchLabel] != s.WatchFilter:
		case object.GetDeletionTimestamp() != nil:
			say("workload cluster %s: passed over, it is being deleted", key)
		case !provisioned(cluster):
			say("workload cluster %s: passed over, it has never been provisioned", key)
		default:
			clusters = append(clusters, cluster)
		}
		return nil
	})
	return clusters, err
}

// provisioned reports whether a Cluster has an API server, in both versions of the API.
func provisioned(cluster *unstructured.Unstructured) bool {
	now, _, _ := unstructured.NestedBool(cluster.Object, "status", "initialization", "infrastructureProvisioned")
	before, _, _ := unstructured.NestedBool(cluster.Object, "status", "infrastructureReady")
	return now || before
}

// workload releases one workload cluster: first what admits Nodes there, then the Nodes.
func (s *session) workload(ctx context.Context, cluster webhook.Identity, registrar *webhook.Registrar) error {
	server, err := s.withdrawFrom(ctx, cluster, registrar)
	if err != nil {
		return err
	}
	s.nodes(ctx, server, func(*corev1.Node) bool { return true })
	return nil
}

// withdrawFrom takes away what admits Nodes in a workload cluster.
func (s *session) withdrawFrom(ctx context.Context, cluster webhook.Identity, registrar *webhook.Registrar) (reporting, error) {
	c, err := s.Workload(ctx, cluster.NamespacedName)
	if err != nil {
		return reporting{}, err
	}
	server := s.reporting(c, " in workload cluster "+cluster.String())
	// Whoever may not even look has not set it up.
	if err := s.removeWebhook(ctx, server, cluster, registrar); err != nil && !apierrors.IsForbidden(err) {
		return server, err
	}
	if err := (policy.Syncer{}).Remove(ctx, server); err != nil && !apierrors.IsForbidden(err) {
		return server, fmt.Errorf("removing the admission policy: %w", err)
	}
	return server, nil
}

// removeWebhook removes the webhook configuration, if it leads to this Heirloom, and says so if it does not.
func (s *session) removeWebhook(ctx context.Context, server reporting, cluster webhook.Identity, registrar *webhook.Registrar) error {
	if err := registrar.Remove(ctx, server, cluster); err != nil || s.DryRun {
		return err
	}
	err := server.Get(ctx, types.NamespacedName{Name: webhook.ObjectName}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	if err == nil {
		s.report.note("workload cluster %s: MutatingWebhookConfiguration %s is left, it leads to another Heirloom or to a URL that "+
			"is not known any more; delete it by hand if nobody answers there", cluster, webhook.ObjectName)
	}
	return client.IgnoreNotFound(err)
}
