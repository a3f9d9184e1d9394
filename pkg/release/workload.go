// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// workloads releases what is in workload clusters. An unreachable one does not hold up the others.
func (s *session) workloads(ctx context.Context, keys *webhook.Store) {
	clusters, err := s.clusters(ctx, s.report.note)
	if err != nil {
		s.report.failed(err)
		return
	}
	admission := s.admission(keys)
	s.eachCluster(clusters, func(cluster *unstructured.Unstructured) { s.workload(ctx, cluster, admission) })
}

// workload releases what is in one workload cluster: first what admits Nodes there, then the Nodes.
func (s *session) workload(ctx context.Context, cluster *unstructured.Unstructured, admission *workload.Admission) {
	identity := webhook.IdentityOf(cluster)
	server, err := s.withdrawFrom(ctx, identity, admission)
	if err != nil {
		s.report.failed(fmt.Errorf("workload cluster %s: %w", identity, err))
		return
	}
	s.nodes(ctx, server, func(*corev1.Node) bool { return true })
}

func (s *session) admission(keys *webhook.Store) *workload.Admission {
	registrar := &webhook.Registrar{Management: s.management, Installed: s.WebhookConfiguration, BaseURL: s.WorkloadWebhookURL, Keys: keys}
	return &workload.Admission{Ways: map[string]workload.Way{workload.AdmitByWebhook: registrar, workload.AdmitByPolicy: workload.ByPolicy{}}}
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

// clusters returns the Clusters whose workload clusters Heirloom may have reached, and reports which ones it skips.
func (s *session) clusters(ctx context.Context, say func(format string, args ...any)) ([]*unstructured.Unstructured, error) {
	var clusters []*unstructured.Unstructured
	err := s.eachServed(ctx, "Cluster", func(cluster *unstructured.Unstructured) {
		if s.WatchFilter != "" && cluster.GetLabels()[clusterv1.WatchLabel] != s.WatchFilter {
			return
		}
		if s.hasWorkload(cluster, say) {
			clusters = append(clusters, cluster)
		}
	})
	return clusters, err
}

// hasWorkload reports whether there is a workload cluster to work in, and reports why it is skipped.
func (s *session) hasWorkload(cluster *unstructured.Unstructured, say func(format string, args ...any)) bool {
	key := client.ObjectKeyFromObject(cluster)
	switch {
	case key == s.ManagementCluster: // its Nodes are those of the management cluster
		return false
	case cluster.GetDeletionTimestamp() != nil:
		say("workload cluster %s: passed over, it is being deleted", key)
		return false
	case !provisioned(cluster):
		say("workload cluster %s: passed over, it has never been provisioned", key)
		return false
	}
	return true
}

// provisioned reports whether a Cluster has an API server, in both versions of the API.
func provisioned(cluster *unstructured.Unstructured) bool {
	now, _, _ := unstructured.NestedBool(cluster.Object, "status", "initialization", "infrastructureProvisioned")
	before, _, _ := unstructured.NestedBool(cluster.Object, "status", "infrastructureReady")
	return now || before
}

// withdrawFrom removes what admits Nodes in a workload cluster.
func (s *session) withdrawFrom(ctx context.Context, cluster webhook.Identity, admission *workload.Admission) (reporting, error) {
	c, err := s.Workload(ctx, cluster.NamespacedName)
	if err != nil {
		return reporting{}, err
	}
	server := s.reporting(c, " in workload cluster "+cluster.String())
	_, err = admission.Ensure(ctx, server, cluster, workload.AdmitByLoop, func(reason, _ string) {
		if reason == workload.ReasonForeign && !s.DryRun {
			s.report.note("workload cluster %s: MutatingWebhookConfiguration %s stays: it leads to another Heirloom, or to a URL that "+
				"Heirloom no longer knows; delete it by hand if nothing answers there", cluster, webhook.ObjectName)
		}
	})
	return server, err
}
