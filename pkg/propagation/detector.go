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
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	for {
		if err := d.detect(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find out whether Cluster API propagates taints; what was known stays in force")
		}
		interval := min(d.Interval, atLeast)
		if d.State() == inherit.PropagationUnknown {
			interval = retry
		}
		timer := time.NewTimer(wait.Jitter(interval, 0.1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
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

// example returns an object to ask with and the path of its taints, or nil while there is none. One that is being deleted does
// as well: the last Machines of all may wait for what the detector finds out.
func (d *Detector) example(ctx context.Context) (client.Object, []string, error) {
	machines := &capi.MachineList{}
	if err := d.Client.List(ctx, machines); err != nil {
		return nil, nil, fmt.Errorf("listing Machines: %w", err)
	}
	if m := example(machines.Items, func(m *capi.Machine) bool { return m.DeletionTimestamp == nil }); m != nil {
		return m, []string{"spec", "taints"}, nil
	}
	sets := &capi.MachineSetList{}
	if err := d.Client.List(ctx, sets); err != nil {
		return nil, nil, fmt.Errorf("listing MachineSets: %w", err)
	}
	if ms := example(sets.Items, func(ms *capi.MachineSet) bool { return ms.DeletionTimestamp == nil }); ms != nil {
		return ms, []string{"spec", "template", "spec", "taints"}, nil
	}
	return nil, nil, nil
}

// example returns the first that is living, or else any, or else nil.
func example[T any](all []T, living func(*T) bool) *T {
	for i := range all {
		if living(&all[i]) {
			return &all[i]
		}
	}
	if len(all) > 0 {
		return &all[0]
	}
	return nil
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
	if stored, _, _ := unstructured.NestedSlice(config.Object, path...); contains(stored, probeKey) {
		return inherit.PropagationEnabled, nil
	}
	return inherit.PropagationDisabled, nil
}

func contains(taints []any, key string) bool {
	for _, t := range taints {
		if m, ok := t.(map[string]any); ok && m["key"] == key {
			return true
		}
	}
	return false
}
