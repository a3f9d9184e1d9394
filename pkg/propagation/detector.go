// SPDX-License-Identifier: Apache-2.0

// Package propagation finds out whether Cluster API propagates taints itself, that is whether its feature gate
// MachineTaintPropagation is on.
//
// There is no API that tells. But Cluster API's webhook refuses every Machine with taints while the gate is off, and
// CRDs before v1.12 do not have the field. So the detector asks with a dry run: it applies one harmless taint to an existing
// Machine or MachineSet, stores nothing, and looks at what came back. That needs no right that the loop does not have.
package propagation

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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// probeManager owns nothing: its applies are dry runs.
	probeManager = "heirloom-probe"
	// probeKey is the taint of the dry run.
	probeKey = "heirloom.dev/probe"
	// featureGate is named by Cluster API's refusal. Any other refusal tells nothing about taints.
	featureGate = "MachineTaintPropagation"
	// noSuchField is in the answer to an apply where the CRD does not have the field.
	noSuchField = "field not declared in schema"
	// retry is how soon the detector asks again while there was nothing to ask with.
	retry = 5 * time.Second
	// atLeast is how often it asks once it knows. A gate that has been switched off makes Cluster API refuse Machines with the
	// taints that are declared by annotation, so that is not to go unnoticed for long.
	atLeast = time.Minute
)

// Detector holds what is known. It is a manager.Runnable that runs on every replica, because every replica answers
// admission requests.
type Detector struct {
	// Broadcaster tells whenever what is known changes.
	broadcast.Broadcaster
	// Client reads from the cache and writes the dry run.
	Client client.Client
	// Interval is how often Cluster API is asked again, but it is asked once a minute at least.
	Interval time.Duration

	state atomic.Int32
}

// State returns what is known now.
func (d *Detector) State() inherit.TaintPropagation {
	return inherit.TaintPropagation(d.state.Load())
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Detector) NeedLeaderElection() bool { return false }

// Start asks until ctx is done.
func (d *Detector) Start(ctx context.Context) error {
	_ = wait.DelayFunc(d.again).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := d.detect(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find out whether Cluster API propagates taints; what was known stays in force")
		}
		return false, nil
	})
	return nil
}

// again returns when to ask the next time.
func (d *Detector) again() time.Duration {
	interval := min(d.Interval, atLeast)
	if d.State() == inherit.PropagationUnknown {
		interval = retry
	}
	return wait.Jitter(interval, 0.1)
}

func (d *Detector) detect(ctx context.Context) error {
	object, path, err := d.example(ctx)
	if err != nil || object == nil {
		return err
	}
	state, err := d.probe(ctx, object, path)
	if err != nil || state == d.State() {
		return err
	}
	d.state.Store(int32(state)) //nolint:gosec // one of three constants
	d.Publish()
	ctrl.LoggerFrom(ctx).Info("Found out whether Cluster API propagates taints", "clusterAPITaintPropagation", state.String())
	return nil
}

// example returns an object to ask with and the path of its taints, or nil while there is none. One that is being deleted is
// the last choice, but good enough: the last Machines of all may wait for what the detector finds out.
func (d *Detector) example(ctx context.Context) (example client.Object, path []string, err error) {
	for _, kind := range []struct {
		plural string
		list   client.ObjectList
		path   []string
	}{
		{"Machines", &capi.MachineList{}, []string{"spec", "taints"}},
		{"MachineSets", &capi.MachineSetList{}, []string{"spec", "template", "spec", "taints"}},
	} {
		if err := d.Client.List(ctx, kind.list); err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", kind.plural, err)
		}
		err := meta.EachListItem(kind.list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if ok && (example == nil || object.GetDeletionTimestamp() == nil) {
				example = object
			}
			return nil
		})
		if example != nil || err != nil {
			return example, kind.path, err
		}
	}
	return nil, nil, nil
}

// probe applies a taint to the object, as a dry run, and tells from the answer what Cluster API does with it.
func (d *Detector) probe(ctx context.Context, object client.Object, path []string) (inherit.TaintPropagation, error) {
	gvk, err := apiutil.GVKForObject(object, d.Client.Scheme())
	if err != nil {
		return inherit.PropagationUnknown, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(gvk)
	config.SetNamespace(object.GetNamespace())
	config.SetName(object.GetName())
	config.SetUID(object.GetUID())
	probe := map[string]any{"key": probeKey, "effect": "PreferNoSchedule", "propagation": "OnInitialization"}
	if err := unstructured.SetNestedSlice(config.Object, []any{probe}, path...); err != nil {
		return inherit.PropagationUnknown, fmt.Errorf("building the probe: %w", err)
	}
	err = d.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(config), client.DryRunAll, client.FieldOwner(probeManager))
	switch {
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), featureGate),
		err != nil && strings.Contains(err.Error(), noSuchField):
		return inherit.PropagationDisabled, nil
	case err != nil:
		return inherit.PropagationUnknown, fmt.Errorf("asking with a dry run on %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(object), err)
	}
	stored, _, _ := unstructured.NestedSlice(config.Object, path...)
	kept := slices.ContainsFunc(stored, func(item any) bool {
		taint, ok := item.(map[string]any)
		return ok && taint["key"] == probeKey
	})
	if kept {
		return inherit.PropagationEnabled, nil
	}
	return inherit.PropagationDisabled, nil
}
