// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// RegisterWorkload adds the webhook for the Nodes of workload clusters to the server. The path of a request must have been made
// with the key, as it is then.
func RegisterWorkload(server webhook.Server, dependencies Dependencies, key func(context.Context) []byte) {
	server.Register(workloadwebhook.Prefix, newWorkload(dependencies, key))
}

// newWorkload answers API servers that are not trusted: each may ask about the Nodes of its own Cluster, which its path names and
// proves. All other requests get the same answer, which does not tell what exists, and nothing but their path is read.
func newWorkload(d Dependencies, key func(context.Context) []byte) http.Handler {
	// Requests of workload clusters must cause only a few requests to the management cluster's API server.
	d.Chain = inBudget(d.Chain)
	d.Chain.AskMissing = false
	reviews := newReviewer(workloadRoom, longestWorkloadAnswer, d.Metrics.AdmissionRejected(metrics.WorkloadServer)).
		of(failOpen{decider: workloadNodes{d, lru.New(limitedClusters)}, metrics: d.Metrics})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid := func(name types.NamespacedName) types.UID { return d.uidOf(r.Context(), name) }
		cluster, ok := workloadwebhook.Verify(key(r.Context()), r.URL.EscapedPath(), uid)
		if !ok || r.Method != http.MethodPost {
			d.Metrics.WorkloadDenied() // not why: a difference would tell others what exists
			http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
			return
		}
		reviews.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, cluster)))
	})
}

// uidOf returns the UID of a Cluster in the cache: an unproven caller must not cause requests to the management cluster's API server. A
// replica whose cache does not have a new Cluster yet, or fails, denies the request, and the API server lets the Node pass.
func (d Dependencies) uidOf(ctx context.Context, name types.NamespacedName) types.UID {
	cluster, err := d.Chain.Cluster(ctx, name.Namespace, name.Name)
	if err != nil || cluster == nil {
		return ""
	}
	return cluster.UID
}

const (
	// readsPerSecond and readsAtOnce are how many reads from the management cluster's API server each workload cluster may cause. Cluster
	// API writes at most 20 Nodes a second and workload cluster; more must come from another client.
	readsPerSecond, readsAtOnce = 20, 100
	// limitedClusters is how many workload clusters have a limit of their own at a time.
	limitedClusters = 10_000
)

// callerKey is where the context of a request has its caller, the types.NamespacedName of a Cluster.
type callerKey struct{}

// workloadNodes is nodes, for the Nodes of the caller.
type workloadNodes struct {
	Dependencies
	// limits has a *rate.Limiter for each workload cluster, so that no other pays for a cluster that asks without end.
	limits *lru.Cache
}

func (h workloadNodes) decide(ctx context.Context, req admission.Request) (answer, error) {
	cluster, ok := ctx.Value(callerKey{}).(types.NamespacedName)
	// The configuration registers nothing but Nodes, but a client that knows the path can send anything.
	aboutNode := req.Resource.Group == corev1.GroupName && req.Resource.Resource == "nodes" && req.SubResource == ""
	if !ok || !aboutNode {
		return unmatched(), nil
	}
	own := nodesOf(h.Dependencies, cluster)
	own.Chain.AllowLive = h.limit(cluster).Allow
	return own.decide(ctx, req)
}

func (h workloadNodes) limit(cluster types.NamespacedName) *rate.Limiter {
	if known, ok := h.limits.Get(cluster); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // nothing else is put there
	}
	limiter := rate.NewLimiter(readsPerSecond, readsAtOnce)
	h.limits.Add(cluster, limiter)
	return limiter
}
