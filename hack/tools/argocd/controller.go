// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/argoproj/gitops-engine/pkg/sync/hook"
	resourceutil "github.com/argoproj/gitops-engine/pkg/sync/resource"
	"github.com/argoproj/gitops-engine/pkg/sync/syncwaves"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// controller has the parts of Argo CD's application controller that tests need.
type controller struct {
	app      v1alpha1.Application
	settings *settings.SettingsManager
	config   *rest.Config
	kubectl  *kube.KubectlCmd
}

// newController returns the controller of an Argo CD that is installed in the namespace argocd.
func newController(ctx context.Context, r request) (*controller, error) {
	const namespace = "argocd"
	part := metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "argocd"}}
	configMap, secret := &corev1.ConfigMap{ObjectMeta: part, Data: r.Settings}, &corev1.Secret{ObjectMeta: part}
	configMap.Name, secret.Name = common.ArgoCDConfigMapName, common.ArgoCDSecretName
	c := &controller{
		app: r.Application, settings: settings.NewSettingsManager(ctx, fake.NewClientset(configMap, secret), namespace),
		kubectl: &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}},
	}
	if r.Kubeconfig == "" {
		return c, nil
	}
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", r.Kubeconfig); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}

// serverSide reports whether the Application is synced by server-side apply.
func (c *controller) serverSide() bool {
	return c.app.Spec.SyncPolicy != nil && c.app.Spec.SyncPolicy.SyncOptions.HasOption("ServerSideApply=true")
}

// track marks the objects as objects of the Application.
func (c *controller) track(objects []*unstructured.Unstructured) error {
	method, err := c.settings.GetTrackingMethod()
	if err != nil {
		return fmt.Errorf("reading the tracking method: %w", err)
	}
	key, err := c.settings.GetAppInstanceLabelKey()
	if err != nil {
		return fmt.Errorf("reading the tracking label: %w", err)
	}
	tracking := argo.NewResourceTracking()
	for _, o := range objects {
		err := tracking.SetAppInstance(o, key, c.app.Name, c.app.Spec.Destination.Namespace, v1alpha1.TrackingMethod(method), "")
		if err != nil {
			return fmt.Errorf("tracking %s: %w", kube.GetResourceKey(o), err)
		}
	}
	return nil
}

// apply syncs the objects whether they have changed or not, as self-heal and a forced sync do.
func (c *controller) apply(ctx context.Context, objects []*unstructured.Unstructured) ([]answer, error) {
	if err := c.track(objects); err != nil {
		return nil, err
	}
	schema, _, err := c.kubectl.LoadOpenAPISchema(c.config)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas: %w", err)
	}
	operations, cleanup, err := c.kubectl.ManageResources(c.config, schema)
	if err != nil {
		return nil, fmt.Errorf("preparing to apply: %w", err)
	}
	defer cleanup()
	for _, o := range objects {
		_, err := operations.ApplyResource(ctx, o, cmdutil.DryRunNone, false, true, c.serverSide(), common.ArgoCDSSAManager)
		if err != nil {
			return nil, fmt.Errorf("applying %s: %w", kube.GetResourceKey(o), err)
		}
	}
	return make([]answer, len(objects)), nil
}

// live reads the stored objects. An object that does not exist is nil.
func (c *controller) live(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var lives []*unstructured.Unstructured
	for _, o := range objects {
		live, err := c.kubectl.GetResource(ctx, c.config, o.GroupVersionKind(), o.GetName(), o.GetNamespace())
		if apierrors.IsNotFound(err) {
			live, err = nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", kube.GetResourceKey(o), err)
		}
		lives = append(lives, live)
	}
	return lives, nil
}

// diff compares the objects with the stored objects.
func (c *controller) diff(ctx context.Context, objects []*unstructured.Unstructured) ([]answer, error) {
	if err := c.track(objects); err != nil {
		return nil, err
	}
	lives, err := c.live(ctx, objects)
	if err != nil {
		return nil, err
	}
	config, cleanup, err := c.diffConfig()
	if err != nil {
		return nil, err
	}
	defer cleanup()
	results, err := argodiff.StateDiffs(lives, objects, config)
	if err != nil {
		return nil, fmt.Errorf("comparing: %w", err)
	}
	var answers []answer
	for _, result := range results.Diffs {
		answers = append(answers, answer{Modified: result.Modified, Live: result.NormalizedLive, Predicted: result.PredictedLive})
	}
	return answers, nil
}

// diffConfig returns the configuration of a comparison of the Application.
func (c *controller) diffConfig() (argodiff.DiffConfig, func(), error) {
	overrides, err := c.settings.GetResourceOverrides()
	if err != nil {
		return nil, nil, fmt.Errorf("reading how resources are compared: %w", err)
	}
	options, err := c.settings.GetResourceCompareOptions()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the compare options: %w", err)
	}
	method, err := c.settings.GetTrackingMethod()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the tracking method: %w", err)
	}
	key, err := c.settings.GetAppInstanceLabelKey()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the tracking label: %w", err)
	}
	schema, parser, err := c.kubectl.LoadOpenAPISchema(c.config)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the schemas: %w", err)
	}
	applier, cleanup, err := kube.ManageServerSideDiffDryRuns(c.config, schema, tracing.NopTracer{}, logr.Discard(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing dry runs: %w", err)
	}
	config, err := argodiff.NewDiffConfigBuilder().
		WithDiffSettings(c.app.Spec.IgnoreDifferences, overrides, options.IgnoreAggregatedRoles,
			normalizers.IgnoreNormalizerOpts{JQExecutionTimeout: time.Second}).
		WithTracking(key, method).WithNoCache().WithGVKParser(parser).WithManager(common.ArgoCDSSAManager).
		WithIgnoreMutationWebhook(!resourceutil.HasAnnotationOption(&c.app, common.AnnotationCompareOptions, "IncludeMutationWebhook=true")).
		WithServerSideDiff(resourceutil.HasAnnotationOption(&c.app, common.AnnotationCompareOptions, "ServerSideDiff=true")).
		WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)).
		WithStructuredMergeDiff(c.serverSide()).Build()
	if err != nil {
		cleanup()
		return nil, nil, fmt.Errorf("configuring the comparison: %w", err)
	}
	return config, cleanup, nil
}

// health assesses stored objects.
func (c *controller) health(_ context.Context, objects []*unstructured.Unstructured) ([]answer, error) {
	overrides, err := c.settings.GetResourceOverrides()
	if err != nil {
		return nil, fmt.Errorf("reading the health checks: %w", err)
	}
	answers := make([]answer, len(objects))
	for i, o := range objects {
		status, err := health.GetResourceHealth(o, lua.ResourceHealthOverrides(overrides))
		if err != nil {
			return nil, fmt.Errorf("judging %s: %w", kube.GetResourceKey(o), err)
		}
		if status != nil {
			answers[i] = answer{Health: string(status.Status), Message: status.Message}
		}
	}
	return answers, nil
}

// hooks returns how a sync treats the objects that are hooks.
func (c *controller) hooks(_ context.Context, objects []*unstructured.Unstructured) ([]answer, error) {
	answers := make([]answer, len(objects))
	for i, o := range objects {
		answers[i].Hook, answers[i].Wave = hook.IsHook(o), syncwaves.Wave(o)
		for _, phase := range hook.Types(o) {
			answers[i].Phases = append(answers[i].Phases, string(phase))
		}
		for _, policy := range hook.DeletePolicies(o) {
			answers[i].Deletion = append(answers[i].Deletion, string(policy))
		}
	}
	return answers, nil
}
