// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

const (
	// clusterTimeout is how long one workload cluster may take, and totalTimeout how long all of them. Helm gives a hook five minutes
	// unless it is told otherwise, and the leader has to stop before.
	clusterTimeout = 10 * time.Second
	totalTimeout   = 2 * time.Minute
	// reasonLeft is the reason of the Event on a Cluster that was passed over. docs/monitoring.md says what it means.
	reasonLeft = "WorkloadAdmissionLeft"
)

// byHand removes the same from a workload cluster. There are two commands, because kubectl fails as a whole if one kind is not
// served.
const byHand = "kubectl delete --ignore-not-found mutatingwebhookconfiguration/" + webhook.ObjectName +
	" namespace/" + policy.Namespace + "; kubectl delete --ignore-not-found mutatingadmissionpolicybinding/" +
	policy.Name + " mutatingadmissionpolicy/" + policy.Name

// withdraw removes what admits Nodes in workload clusters, while no leader can set it up again. If there are no workload
// clusters, the leader goes on.
func (s *session) withdraw(ctx context.Context) error {
	clusters, err := s.clusters(ctx, s.report.note)
	if err != nil || len(clusters) == 0 {
		return err
	}
	return s.withoutLeader(ctx, func(ctx context.Context) error {
		keys, _, err := s.keys(ctx)
		if err != nil {
			return err
		}
		// The leader may have heard of another Cluster before it stopped.
		if clusters, err = s.clusters(ctx, func(string, ...any) {}); err != nil {
			return err
		}
		admission := s.admission(keys)
		bounded, cancel := context.WithTimeout(ctx, totalTimeout)
		defer cancel()
		s.eachCluster(clusters, func(cluster *unstructured.Unstructured) {
			bounded, cancel := context.WithTimeout(bounded, clusterTimeout)
			defer cancel()
			if _, err := s.withdrawFrom(bounded, webhook.IdentityOf(cluster), admission); err != nil {
				s.left(ctx, cluster, err)
			}
		})
		return s.report.err()
	})
}

// left reports that something may be left in a workload cluster, and how to remove it. The log of a successful hook may be
// gone soon, so there is an Event on the Cluster, too.
func (s *session) left(ctx context.Context, cluster *unstructured.Unstructured, cause error) {
	key := client.ObjectKeyFromObject(cluster)
	if !s.PassOverUnreachable {
		s.report.failed(fmt.Errorf("workload cluster %s: %w", key, cause))
		return
	}
	note := fmt.Sprintf("what admits Nodes there could not be taken away, and stays. By hand, with its kubeconfig: %s. The reason: %v", byHand, cause)
	s.report.note("workload cluster %s: %s", key, note)
	if s.DryRun {
		return
	}
	if err := s.Management.Create(ctx, event(cluster, note)); err != nil {
		s.report.note("workload cluster %s: there is no Event about that: %v", key, err)
	}
}

// event is a warning about a Cluster. API servers refuse a note of more than 1024 bytes.
func event(cluster *unstructured.Unstructured, note string) *eventsv1.Event {
	if len(note) > 1024 {
		note = strings.ToValidUTF8(note[:1020], "") + " …"
	}
	now := metav1.NowMicro()
	return &eventsv1.Event{
		// As recorders of client-go name theirs.
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.GetNamespace(), Name: fmt.Sprintf("%s.%x", cluster.GetName(), now.UnixNano())},
		EventTime:  now, ReportingController: "heirloom", ReportingInstance: holder,
		Type: corev1.EventTypeWarning, Reason: reasonLeft, Action: "Remove", Note: note,
		Regarding: corev1.ObjectReference{
			APIVersion: cluster.GetAPIVersion(), Kind: cluster.GetKind(),
			Namespace: cluster.GetNamespace(), Name: cluster.GetName(), UID: cluster.GetUID(),
		},
	}
}
