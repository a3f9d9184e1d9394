// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers admission requests. One handler serves every kind of Cluster API in the table of pkg/owners; Nodes and the
// validation of taints have handlers of their own. A mutating handler decodes the request, finds the owner in the informer caches, calls
// the pure rules and answers with JSON patch operations.
//
// Every mutating webhook fails open, in the registration (failurePolicy: Ignore) and here: clusters must go on without Heirloom, and the
// resync loop repairs. A request that cannot be decoded or answered is allowed unchanged, with a warning and a metric. The validating
// webhook rejects only taints that it has checked.
package webhooks

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// Paths that the webhook configurations of the Helm chart call, in addition to the paths that PathOf returns.
const (
	NodesPath  = "/mutate/nodes"
	TaintsPath = "/validate/taints"
)

// PathOf returns the path for a kind of Cluster API, or for all control planes or external objects.
func PathOf(kind owners.Kind) string { return "/mutate/" + kind.Resource }

// Dependencies are shared by all handlers.
type Dependencies struct {
	Chain   *owners.Chain
	Metrics *metrics.Metrics
	// Watches reports whether the objects of a namespace are watched and handled.
	Watches func(namespace string) bool
	// ManagementCluster is the Cluster whose Nodes are in the management cluster's API server; empty if there is none.
	ManagementCluster types.NamespacedName
	// Policy returns the current policy.
	Policy func() inherit.Policy
}

// Register adds the webhooks that the management cluster's API servers call.
func Register(server webhook.Server, dependencies Dependencies) {
	reviews := newReviewer(managementRoom, LongestAnswer, dependencies.Metrics.AdmissionRejected(metrics.ManagementServer))
	for path, d := range decidersOf(dependencies) {
		server.Register(path, reviews.of(failOpen{decider: d, metrics: dependencies.Metrics, watches: dependencies.Watches}))
	}
}

// decidersOf returns the decider of each path.
func decidersOf(dependencies Dependencies) map[string]decider {
	all := map[string]decider{NodesPath: nodesOf(dependencies, dependencies.ManagementCluster), TaintsPath: taints{dependencies}}
	for _, kind := range owners.Table {
		all[PathOf(kind)] = children{dependencies, kind}
	}
	return all
}

// answer is the decision of a handler. The zero value allows the request untouched.
type answer struct {
	outcome  metrics.Outcome
	patch    []jsonpatch.Operation
	warnings []string
	// The types (label, annotation and so on) of the entries that the patch adds, removes, and puts back after an update removed them.
	brought, removed, kept []string
	// observed says that the request is allowed untouched.
	observed bool
	// refusal is a complete response; nil to allow the request.
	refusal *admission.Response
}

// unmatched allows an object that Heirloom does not handle.
func unmatched() answer {
	return answer{outcome: metrics.Unmatched}
}

// untouched allows an object that inherits nothing for now, and logs the reason, if there is one.
func untouched(ctx context.Context, why inherit.Reason) answer {
	ctrl.LoggerFrom(ctx).V(2).Info("Object inherits nothing with this write", "reason", why)
	return unmatched()
}

// decider decides about one kind of object.
type decider interface {
	decide(ctx context.Context, req admission.Request) (answer, error)
}

// failOpen is the admission handler of a decider: after an error or a panic, it allows the request.
type failOpen struct {
	decider
	metrics *metrics.Metrics
	watches func(namespace string) bool
}

// Handle implements admission.Handler.
func (h failOpen) Handle(ctx context.Context, req admission.Request) admission.Response {
	cluster, ofWorkload := ctx.Value(callerKey{}).(types.NamespacedName)
	if ofWorkload {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(cluster.Namespace, cluster.Name)))
	}
	decided, err := h.guarded(ctx, req)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Admission request allowed unchanged", "operation", req.Operation)
		missed := "the object inherited nothing with this write"
		if _, checks := h.decider.(taints); checks {
			missed = "the taints of this write were not checked"
		}
		if !ofWorkload { // workload clusters must not read errors about the management cluster
			missed += ": " + oneLine(err)
		}
		decided = answer{outcome: metrics.Failed, warnings: []string{"heirloom: " + missed}}
	}
	if decided.observed {
		decided = answer{outcome: metrics.Observed}
	}
	h.count(req, decided)
	response := admission.Patched("", decided.patch...)
	if decided.refusal != nil {
		response = *decided.refusal
	}
	return response.WithWarnings(decided.warnings...)
}

// count counts a decision and its changes.
func (h failOpen) count(req admission.Request, decided answer) {
	kind, operation := metrics.Kind(req.Kind.Group, req.Kind.Kind), string(req.Operation)
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		operation = "other"
	}
	h.metrics.Admission(kind, operation, decided.outcome)
	for _, what := range decided.brought {
		h.metrics.Key(metrics.ByAdmission, kind, what, metrics.KeyInjected)
	}
	for _, what := range decided.removed {
		h.metrics.Key(metrics.ByAdmission, kind, what, metrics.KeyRemoved)
	}
	for _, what := range decided.kept {
		h.metrics.Drift(metrics.ByAdmission, kind, what)
	}
}

func (h failOpen) guarded(ctx context.Context, req admission.Request) (decided answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			ctrl.LoggerFrom(ctx).Error(nil, "Panic in an admission handler", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	if h.watches != nil && req.Namespace != "" && !h.watches(req.Namespace) {
		return unmatched(), nil
	}
	return h.decide(ctx, req)
}

// warn adds a warning for each entry that was left out.
func (a *answer) warn(leftOut error) {
	for _, problem := range inherit.Problems(leftOut) {
		a.warnings = append(a.warnings, "heirloom: not inherited: "+oneLine(problem))
	}
}

// mostWarnings is the number of entries that a response reports in detail. API servers pass on 4 KiB of warnings, and drop the rest
// silently.
const mostWarnings = 10

// warnings returns a warning for each entry, but at most mostWarnings, and then a warning with the number of further entries.
func warnings[T any](kept []T, text func(T) string) []string {
	var all []string
	for i, one := range kept {
		if i == mostWarnings {
			return append(all, fmt.Sprintf("heirloom: the same applies to %d more entries", len(kept)-i))
		}
		all = append(all, text(one))
	}
	return all
}

// longestWarning is the maximum size of an error in a warning, in bytes.
const longestWarning = 2 << 10

// oneLine fits an error into an HTTP header, which carries a warning.
func oneLine(err error) string {
	return strings.ReplaceAll(inherit.Shorten(err.Error(), longestWarning), "\n", "; ")
}
