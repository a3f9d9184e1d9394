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
	"github.com/heirloom-dev/heirloom/pkg/owners"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// RegisterWorkload adds the webhook for the Nodes of workload clusters to the server. The path of a request must match the key at the
// time of the request.
func RegisterWorkload(server webhook.Server, dependencies Dependencies, key func(context.Context) []byte) {
	server.Register(workloadwebhook.Prefix, newWorkload(dependencies, key))
}

// newWorkload returns a handler for API servers that are not trusted: each may ask about the Nodes of its own Cluster, which its path
// names and proves. Of all other requests, only the path is read. They get the same answer, which does not reveal which Clusters exist.
func newWorkload(d Dependencies, key func(context.Context) []byte) http.Handler {
	// Requests of workload clusters must cause only a few requests to the management cluster's API server.
	d.Chain = d.Chain.Reading(owners.FromCachePromptly)
	reviews := newReviewer(workloadRoom, longestWorkloadAnswer, d.Metrics.AdmissionRejected(metrics.WorkloadServer)).
		of(failOpen{decider: workloadNodes{d, lru.New(limitedClusters)}, metrics: d.Metrics})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid := func(name types.NamespacedName) types.UID { return d.uidOf(r.Context(), name) }
		cluster, ok := workloadwebhook.Verify(key(r.Context()), r.URL.EscapedPath(), uid)
		if !ok || r.Method != http.MethodPost {
			d.Metrics.WorkloadRejected() // without a reason: a difference would reveal which Clusters exist
			http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
			return
		}
		reviews.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, cluster)))
	})
}

// uidOf returns the UID of a Cluster in the cache: an unproven caller must not cause requests to the management cluster's API server. If
// a replica's cache fails, or does not have a new Cluster yet, the replica denies the request, and the API server lets the Node pass.
func (d Dependencies) uidOf(ctx context.Context, name types.NamespacedName) types.UID {
	cluster, err := d.Chain.Cluster(ctx, name.Namespace, name.Name)
	if err != nil || cluster == nil {
		return ""
	}
	return cluster.UID
}

const (
	// readsPerSecond and readsAtOnce are the rate and the burst of reads from the management cluster's API server that each workload cluster
	// may cause. Cluster API writes at most 20 Nodes a second in a workload cluster; more requests must come from another client.
	readsPerSecond, readsAtOnce = 20, 100
	// limitedClusters is the number of workload clusters that have a rate limit of their own at a time.
	limitedClusters = 10_000
)

// callerKey is the context key of a request's caller, the types.NamespacedName of a Cluster.
type callerKey struct{}

// workloadNodes decides about the Nodes of the caller.
type workloadNodes struct {
	Dependencies
	// limits holds a *rate.Limiter for each workload cluster, so that endless requests from a cluster do not slow down other clusters.
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
	own.Chain.Live = owners.Limited{Reader: own.Chain.Live, Allow: h.limit(cluster).Allow}
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
