// SPDX-License-Identifier: Apache-2.0

// Package capabilities finds out what the management cluster's API server can do: which of the optional fields of Cluster
// API's contract for control planes a provider's kind has, and whether Cluster API propagates taints itself.
package capabilities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	probeManager = "heirloom-probe" // owns nothing: its applies are dry runs
	probeKey     = "heirloom.dev/probe"
	// featureGate is named by Cluster API's refusal. Any other refusal tells nothing about taints.
	featureGate = "MachineTaintPropagation"
	// noSuchField is in the answer to an apply where the CRD does not have the field.
	noSuchField = "field not declared in schema"
	// retry is how soon it is asked again while nothing is known.
	retry = 5 * time.Second
	// sample is how many objects are looked at for one that is not being deleted.
	sample = 100
	// atLeast is how often it is asked once it is known. A gate that has been switched off makes Cluster API refuse Machines with the
	// taints that are declared by annotation, so this must not go unnoticed for long.
	atLeast = time.Minute
)

// ClusterAPI returns an error that names the missing kinds if Cluster API is not installed or too old.
func ClusterAPI(mapper meta.RESTMapper) error {
	var missing []string
	for _, name := range []string{"Cluster", "ClusterClass", "Machine", "MachineDeployment", "MachinePool", "MachineSet"} {
		kind := clusterv1.GroupVersion.WithKind(name).GroupKind()
		_, err := mapper.RESTMapping(kind, clusterv1.GroupVersion.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("finding out whether %s is served: %w", kind, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the API server does not serve %s: install Cluster API v1.11 or later first, which serves %s",
			strings.Join(missing, ", "), clusterv1.GroupVersion)
	}
	return nil
}

// Gate is what is known of Cluster API's feature gate MachineTaintPropagation. No API tells whether it is on. But Cluster
// API's webhook refuses every Machine with taints while it is off, and CRDs before v1.12 do not have the field. So a dry run
// applies one harmless taint to an existing Machine or MachineSet, and the answer shows what Cluster API does with it. That
// needs no right that the loop does not have.
//
// It is a manager.Runnable that runs on every replica, because every replica answers admission requests.
type Gate struct {
	// Broadcaster tells whenever what is known changes.
	broadcast.Broadcaster
	// Client reads from the cache and writes the dry run.
	Client client.Client
	// Interval is how often Cluster API is asked again, but it is asked once a minute at least.
	Interval time.Duration

	state atomic.Int32
}

// State returns what is known now.
func (g *Gate) State() inherit.TaintPropagation {
	return inherit.TaintPropagation(g.state.Load())
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Gate) NeedLeaderElection() bool { return false }

// Start asks until ctx is done.
func (g *Gate) Start(ctx context.Context) error {
	_ = wait.DelayFunc(g.again).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := g.detect(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find out whether Cluster API propagates taints; what was known stays in force")
		}
		return false, nil
	})
	return nil
}

// again returns when to ask the next time.
func (g *Gate) again() time.Duration {
	interval := min(g.Interval, atLeast)
	if g.State() == inherit.PropagationUnknown {
		interval = retry
	}
	return wait.Jitter(interval, 0.1)
}

func (g *Gate) detect(ctx context.Context) error {
	object, kind, path, err := g.example(ctx)
	if err != nil || object == nil {
		return err
	}
	state, err := g.probe(ctx, object, kind, path)
	if err != nil || state == g.State() {
		return err
	}
	g.state.Store(int32(state)) //nolint:gosec // one of three constants
	g.Publish()
	ctrl.LoggerFrom(ctx).Info("Found out whether Cluster API propagates taints", "clusterAPITaintPropagation", state.String())
	return nil
}

// example returns an object to ask with, its kind and the path of its taints, or nil while there is none. One that is being deleted is
// the last choice, but good enough: the last Machines of all may wait for the answer.
func (g *Gate) example(ctx context.Context) (example client.Object, kind string, path []string, err error) {
	for _, of := range []struct {
		kind string
		list client.ObjectList
		path []string
	}{
		{"Machine", &clusterv1.MachineList{}, []string{"spec", "taints"}},
		{"MachineSet", &clusterv1.MachineSetList{}, []string{"spec", "template", "spec", "taints"}},
	} {
		if err := g.Client.List(ctx, of.list, client.Limit(sample), client.UnsafeDisableDeepCopy); err != nil {
			return nil, "", nil, fmt.Errorf("listing %ss: %w", of.kind, err)
		}
		err := meta.EachListItem(of.list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if ok && (example == nil || object.GetDeletionTimestamp() == nil) {
				example = object
			}
			return nil
		})
		if example != nil || err != nil {
			return example, of.kind, of.path, err
		}
	}
	return nil, "", nil, nil
}

// probe applies a taint to the object, as a dry run, and tells from the answer what Cluster API does with it.
func (g *Gate) probe(ctx context.Context, object client.Object, kind string, path []string) (inherit.TaintPropagation, error) {
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	config.SetNamespace(object.GetNamespace())
	config.SetName(object.GetName())
	config.SetUID(object.GetUID())
	probe := map[string]any{"key": probeKey, "effect": "PreferNoSchedule", "propagation": "OnInitialization"}
	if err := unstructured.SetNestedSlice(config.Object, []any{probe}, path...); err != nil {
		return inherit.PropagationUnknown, fmt.Errorf("building the probe: %w", err)
	}
	err := g.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(config), client.DryRunAll, client.FieldOwner(probeManager))
	stored, _, _ := unstructured.NestedSlice(config.Object, path...)
	kept := slices.ContainsFunc(stored, func(item any) bool {
		taint, ok := item.(map[string]any)
		return ok && taint["key"] == probeKey
	})
	switch {
	case err == nil && kept:
		return inherit.PropagationEnabled, nil
	case err == nil, apierrors.IsInvalid(err) && strings.Contains(err.Error(), featureGate), strings.Contains(err.Error(), noSuchField):
		return inherit.PropagationDisabled, nil
	}
	return inherit.PropagationUnknown, fmt.Errorf("asking with a dry run on %s %s: %w", kind, client.ObjectKeyFromObject(object), err)
}
