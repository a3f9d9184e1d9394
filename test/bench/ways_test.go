// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The ways of an object through admission: no webhook, the no-op webhook, a MutatingAdmissionPolicy that adds a label, or Heirloom. This
// label of an object names its way. The way without the label is Heirloom.
const (
	wayLabel = "way"

	byNothing  = "nothing"
	byNoOp     = "no-op"
	byPolicy   = "policy"
	byHeirloom = "Heirloom"
)

// take sets the way of an object.
func take(object client.Object, way string) {
	if way == byHeirloom {
		return
	}
	labels := object.GetLabels()
	labels[wayLabel], labels[inherit.IgnoreLabel] = way, ""
}

// laneRules are the rules of all ways.
func laneRules() []admissionregistrationv1.RuleWithOperations {
	both := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	return []admissionregistrationv1.RuleWithOperations{
		{Operations: both, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{clusterv1.GroupVersion.Group}, APIVersions: []string{clusterv1.GroupVersion.Version}, Resources: []string{"machines"},
		}},
		{Operations: both, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}}},
	}
}

// openWays creates the no-op webhook and the MutatingAdmissionPolicy, and waits until each object takes only its own way.
func (f *residents) openWays(b *testing.B, n *noOp) {
	b.Helper()
	for _, object := range append(policyWay(), noOpWay(n)) {
		if err := f.Client.Create(b.Context(), object); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := f.Client.Delete(context.Background(), object); err != nil {
				b.Error(err)
			}
		})
	}
	f.keepNodesApart(b)
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		return f.waysAreOpen(b, ctx, n)
	})
	if err != nil {
		b.Fatalf("waiting for webhooks and policy: %v", err)
	}
}

func noOpWay(n *noOp) client.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: byNoOp},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "no-op.bench.heirloom.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(n.url + noOpPath), CABundle: n.ca},
			Rules:                   laneRules(),
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{wayLabel: byNoOp}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func policyWay() []client.Object {
	rules := make([]admissionregistrationv1.NamedRuleWithOperations, 0, 2)
	for _, rule := range laneRules() {
		rules = append(rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	return []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: byPolicy},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: rules, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wayLabel: byPolicy}},
				},
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{
						Expression: `[JSONPatch{op: "add", path: "/metadata/labels/added", value: "by-policy"}]`,
					},
				}},
			},
		},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: byPolicy},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: byPolicy},
		},
	}
}

// keepNodesApart makes Heirloom's webhook skip Nodes on another way: Nodes cannot opt out.
func (f *residents) keepNodesApart(b *testing.B) {
	b.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := f.Client.Get(b.Context(), client.ObjectKey{Name: "heirloom"}, configuration); err != nil {
		b.Fatal(err)
	}
	before := configuration.DeepCopy()
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == "nodes.heirloom.dev" {
			configuration.Webhooks[i].ObjectSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: wayLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
			}
		}
	}
	if err := f.Client.Patch(b.Context(), configuration, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}

// waysAreOpen creates objects in a dry run, and checks the changes of each way.
func (f *residents) waysAreOpen(b *testing.B, ctx context.Context, n *noOp) (bool, error) {
	b.Helper()
	before := n.usage(b).Requests
	open := true
	for _, way := range []string{byNothing, byNoOp, byPolicy, byHeirloom} {
		for _, object := range []client.Object{f.machine(way), f.node(way)} {
			err := f.Client.Create(ctx, object, client.DryRunAll)
			if apierrors.IsServiceUnavailable(err) {
				return false, nil // the API server rarely updates the kinds that it knows for policies
			}
			if err != nil {
				return false, fmt.Errorf("by %s: %w", way, err)
			}
			labels := object.GetLabels()
			open = open && (labels["node.cluster.x-k8s.io/label-0"] != "") == (way == byHeirloom) && (labels["added"] != "") == (way == byPolicy)
		}
	}
	return open && n.usage(b).Requests-before == 2, nil
}
