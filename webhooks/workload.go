// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// WorkloadPath begins the paths that the API servers of workload clusters call about their Nodes.
const WorkloadPath = workloadwebhook.Prefix

// RegisterWorkload adds the webhook for the Nodes of workload clusters to the server. The path of a request must have been made
// with one of the accepted keys, as they are then.
func RegisterWorkload(server webhook.Server, dependencies Dependencies, accepted func() [][]byte) {
	server.Register(WorkloadPath, draining{told: dependencies.Draining, Handler: newWorkload(dependencies, accepted)})
}

// workload answers API servers that are not trusted: each may ask about the Nodes of its own Cluster, which its path names and
// proves. All other requests get the same answer, which does not tell what exists.
type workload struct {
	accepted func() [][]byte
	metrics  *metrics.Metrics
	chain    *ownerchain.Chain
	nodes    http.Handler
}

func newWorkload(dependencies Dependencies, accepted func() [][]byte) workload {
	// Requests of workload clusters must cause only a few requests to the management cluster's API server.
	dependencies.Chain = dependencies.Chain.CallingNobody().Remembering()
	if dependencies.Live != nil {
		dependencies.Live = ownerchain.Limited{Reader: dependencies.Live, Allow: newReads().allow}
	}
	reviews := newIntake(workloadRoom(), dependencies.Metrics.AdmissionRejected(metrics.WorkloadServer))
	return workload{
		accepted: accepted, metrics: dependencies.Metrics, chain: dependencies.Chain,
		nodes: reviews.wrap(newReviewer(failOpen{decider: workloadNodes{dependencies}, metrics: dependencies.Metrics}), byCluster),
	}
}

// ServeHTTP implements http.Handler. If a request proves no Cluster, only its path is read.
func (h workload) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cluster, ok := h.caller(r)
	if !ok {
		h.metrics.WorkloadDenied() // not why: a difference would tell others what exists
		http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		return
	}
	h.nodes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, cluster)))
}

// caller returns the Cluster whose API server has sent the request, if the request proves that. Clusters are read from the cache
// only, so that an unproven caller cannot cause requests to the management cluster's API server. A replica whose cache does not have
// a new Cluster yet, or fails, denies the request, and the API server lets the Node pass.
func (h workload) caller(r *http.Request) (types.NamespacedName, bool) {
	if r.Method != http.MethodPost {
		return types.NamespacedName{}, false
	}
	return workloadwebhook.Verify(h.accepted(), r.URL.EscapedPath(), func(name types.NamespacedName) types.UID {
		cluster, err := h.chain.Cluster(r.Context(), name.Namespace, name.Name)
		if err != nil || cluster == nil {
			return ""
		}
		return cluster.UID
	})
}

// callerKey is where the context of a request has its caller.
type callerKey struct{}

func callerOf(ctx context.Context) (types.NamespacedName, bool) {
	cluster, ok := ctx.Value(callerKey{}).(types.NamespacedName)
	return cluster, ok
}

// workloadNodes is nodes, for the Nodes of the caller.
type workloadNodes struct{ Dependencies }

func (h workloadNodes) decide(ctx context.Context, req admission.Request) (answer, error) {
	cluster, ok := callerOf(ctx)
	if !ok || !aboutNode(req) {
		return unmatched(), nil
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(cluster.Namespace, cluster.Name)))
	decided, err := failOpen{decider: nodesOf(h.Dependencies, cluster), namespace: h.Namespace}.guarded(ctx, req)
	if err != nil {
		// Workload clusters must not read errors about the management cluster.
		ctrl.LoggerFrom(ctx).Error(err, "Admission request of a workload cluster allowed untouched", "operation", req.Operation)
		return answer{outcome: metrics.Failed, warnings: []string{"heirloom: nothing was inherited by this write"}}, nil
	}
	return decided, nil
}

// aboutNode reports whether a request is about a Node as a whole. The configuration registers nothing else, but a client that knows
// the path can send anything.
func aboutNode(req admission.Request) bool {
	return req.Resource.Group == corev1.GroupName && req.Resource.Resource == "nodes" && req.SubResource == ""
}
