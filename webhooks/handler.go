// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers admission requests. One handler serves every kind of Cluster API in the table of pkg/owners; Nodes
// and the validation of taints have their own. A mutating handler decodes the request, finds the owner in the informer caches,
// calls the pure rules and answers with JSON patch operations.
//
// Every mutating webhook fails open, in the registration (failurePolicy: Ignore) and here: clusters must go on without Heirloom,
// and the resync loop repairs. A request that cannot be decoded or answered is allowed unchanged, with a warning and a metric. The
// validating webhook refuses only taints that it has judged.
package webhooks

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
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

// The paths that the webhook configurations of the Helm chart call, beside those of the kinds of Cluster API.
const (
	NodesPath  = "/mutate/nodes"
	TaintsPath = "/validate/taints"
)

// PathOf is the path for a kind of Cluster API, or for those of providers.
func PathOf(kind owners.Kind) string { return "/mutate/" + kind.Resource }

// Dependencies are what the handlers of all kinds need.
type Dependencies struct {
	Chain   *owners.Chain
	Metrics *metrics.Metrics
	// Namespace is the only one whose objects are watched and answered for; empty means all.
	Namespace string
	// ManagementCluster is the Cluster whose Nodes are in the management cluster's API server; empty if there is none.
	ManagementCluster types.NamespacedName
	// Policy returns the rules' options as they are now.
	Policy func() inherit.Policy
}

// Register adds the webhooks that the management cluster's API servers call.
func Register(server webhook.Server, dependencies Dependencies) {
	reviews := newReviewer(managementRoom, LongestAnswer, dependencies.Metrics.AdmissionRejected(metrics.ManagementServer))
	for path, d := range decidersOf(dependencies) {
		server.Register(path, reviews.of(failOpen{decider: d, metrics: dependencies.Metrics, namespace: dependencies.Namespace}))
	}
}

// decidersOf returns who decides behind each path.
func decidersOf(dependencies Dependencies) map[string]decider {
	dependencies.Chain = inBudget(dependencies.Chain)
	all := map[string]decider{NodesPath: nodesOf(dependencies, dependencies.ManagementCluster), TaintsPath: taints{dependencies.Policy}}
	for _, kind := range owners.Table {
		all[PathOf(kind)] = children{dependencies, kind}
	}
	return all
}

// answer is what a handler decided. The zero value allows the request untouched.
type answer struct {
	outcome  metrics.Outcome
	patch    []jsonpatch.Operation
	warnings []string
	// What the patch injects, what it removes, and what of the injected the update had removed: label, annotation and so on.
	brought, removed, kept []string
	// observed says that the patch is only counted.
	observed bool
	// refusal is a complete response of its own.
	refusal *admission.Response
}

// unmatched allows an object that Heirloom does not handle.
func unmatched() answer {
	return answer{outcome: metrics.Unmatched}
}

// untouched allows an object that inherits nothing for now. If it is skipped, there is a reason.
func untouched(ctx context.Context, why inherit.Reason) answer {
	ctrl.LoggerFrom(ctx).V(2).Info("Object inherits nothing with this write", "reason", why)
	return unmatched()
}

// decider decides about one kind of object.
type decider interface {
	decide(ctx context.Context, req admission.Request) (answer, error)
}

// failOpen makes an admission handler out of a decider: an error or a panic lets the request pass.
type failOpen struct {
	decider
	metrics   *metrics.Metrics
	namespace string
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
		decided = h.observe(req, decided)
	}
	h.count(req, decided)
	response := admission.Patched("", decided.patch...)
	if decided.refusal != nil {
		response = *decided.refusal
	}
	return response.WithWarnings(decided.warnings...)
}

// observe counts what a decision would change, and allows the request untouched.
func (h failOpen) observe(req admission.Request, decided answer) answer {
	for _, what := range slices.Concat(decided.brought, decided.removed) {
		h.metrics.WouldWrite(metrics.Kind(req.Kind.Group, req.Kind.Kind), what)
	}
	return answer{outcome: metrics.Observed}
}

// count counts a decision and what it changes.
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
	if h.namespace != "" && req.Namespace != "" && req.Namespace != h.namespace {
		return unmatched(), nil
	}
	return h.decide(ctx, req)
}

// warn adds a warning for each thing that had to be left out.
func (a *answer) warn(leftOut error) {
	for _, problem := range inherit.Problems(leftOut) {
		a.warnings = append(a.warnings, "heirloom: not inherited: "+oneLine(problem))
	}
}

// mostWarnings is how many kept entries a response reports one by one. API servers pass on 4 KiB of warnings and silently drop the
// rest.
const mostWarnings = 10

// warnings warns of each entry that was kept, or of the first few and how many more there are.
func warnings[T any](kept []T, text func(T) string) []string {
	var all []string
	for i, one := range kept {
		if i == mostWarnings {
			return append(all, fmt.Sprintf("heirloom: %d more entries were kept", len(kept)-i))
		}
		all = append(all, text(one))
	}
	return all
}

// longestWarning is how many bytes of an error a warning repeats.
const longestWarning = 2 << 10

// oneLine fits an error into an HTTP header, which carries a warning.
func oneLine(err error) string {
	text := err.Error()
	if len(text) > longestWarning {
		text = strings.ToValidUTF8(text[:longestWarning], "") + "…"
	}
	return strings.ReplaceAll(text, "\n", "; ")
}
