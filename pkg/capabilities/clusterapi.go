// SPDX-License-Identifier: Apache-2.0

// Package capabilities detects the capabilities of the management cluster's API server: which optional fields of Cluster API's contract for
// control planes a provider's kind has, and whether Cluster API propagates taints itself.
package capabilities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// featureGate is the name of the gate in Cluster API's refusal. Any other refusal says nothing about taints.
	featureGate = "MachineTaintPropagation"
	// wrongPatch and noSuchField begin and end the answer to an apply if the CRD does not have the field. A conflict, or the refusal of a
	// policy, may quote any text, but begins differently.
	wrongPatch, noSuchField = "failed to create typed patch object (", ": field not declared in schema"
	// retry is the interval of probes while the state is unknown.
	retry = 5 * time.Second
	// sample is the maximum number of objects that are listed of a kind, voters the maximum number of namespaces that are probed.
	sample, voters = 100, 5
	// atLeast is the maximum interval of probes once the state is known. After the gate has been switched off, Cluster API refuses Machines
	// with the taints that are declared by annotation, so Heirloom must notice this soon.
	atLeast = time.Minute
)

// ClusterAPI returns an error that names the missing kinds if Cluster API is not installed or too old.
func ClusterAPI(mapper meta.RESTMapper) error {
	var missing []string
	for _, name := range append([]string{"Cluster", "ClusterClass"}, inherit.Kinds...) {
		kind := clusterv1.GroupVersion.WithKind(name).GroupKind()
		_, err := mapper.RESTMapping(kind, clusterv1.GroupVersion.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("checking whether %s is served: %w", kind, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the API server does not serve %s: install Cluster API v1.11 or later first, which serves %s",
			strings.Join(missing, ", "), clusterv1.GroupVersion)
	}
	return nil
}

// Gate has the known state of Cluster API's feature gate MachineTaintPropagation. No API reports the state. But Cluster API's webhook
// refuses every Machine with taints while the gate is off, and CRDs before v1.12 do not have the field. So a dry run applies one harmless
// taint to an existing Machine or MachineSet, and the answer shows the state. The dry run needs only rights that the loop has.
//
// It is a manager.Runnable that runs on every replica, because every replica answers admission requests.
type Gate struct {
	// Broadcaster sends an event when the known state changes.
	broadcast.Broadcaster
	// Client reads from the cache and writes the dry run.
	Client client.Client
	// Interval is the time between two probes, at most atLeast.
	Interval time.Duration

	state atomic.Int32
}

// State returns the known state.
func (g *Gate) State() inherit.TaintPropagation {
	return inherit.TaintPropagation(g.state.Load())
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Gate) NeedLeaderElection() bool { return false }

// Start probes until ctx is done.
func (g *Gate) Start(ctx context.Context) error {
	_ = wait.DelayFunc(g.again).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := g.detect(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to detect whether Cluster API propagates taints; keeping the last result")
		}
		return false, nil
	})
	return nil
}

// again returns the time until the next probe.
func (g *Gate) again() time.Duration {
	interval := min(g.Interval, atLeast)
	if g.State() == inherit.PropagationUnknown {
		interval = retry
	}
	return wait.Jitter(interval, 0.1)
}

// detect probes one object in each of a few namespaces, because the tenant of a namespace may influence the answer. No tenant can make
// Cluster API accept a taint that it refuses, so a single namespace proves that the gate is on. If the gate was on before, two namespaces
// must show that it is off, or the only namespace.
func (g *Gate) detect(ctx context.Context) error {
	examples, err := g.examples(ctx)
	if err != nil || len(examples) == 0 {
		return err
	}
	var unclear []error
	refusals := 0
	for _, of := range examples {
		state, err := g.probe(ctx, of)
		switch {
		case err != nil:
			unclear = append(unclear, err)
		case state == inherit.PropagationEnabled:
			g.learn(ctx, state)
			return nil
		default:
			refusals++
		}
	}
	if refusals == 0 || refusals < min(2, len(examples)) && g.State() == inherit.PropagationEnabled {
		return errors.Join(unclear...)
	}
	g.learn(ctx, inherit.PropagationDisabled)
	return nil
}

func (g *Gate) learn(ctx context.Context, state inherit.TaintPropagation) {
	if state == g.State() {
		return
	}
	g.state.Store(int32(state)) //nolint:gosec // one of three constants
	g.Publish()
	ctrl.LoggerFrom(ctx).Info("Detected whether Cluster API propagates taints", "clusterAPITaintPropagation", state.String())
}

// example is an object to probe, with its kind and the path of its taints.
type example struct {
	client.Object
	kind, path string
}

// examples returns one object in each of a few namespaces, by namespace. An object that is being deleted is the last choice, but good
// enough: the last Machines of a fleet may wait for the answer.
func (g *Gate) examples(ctx context.Context) (map[string]example, error) {
	all := map[string]example{}
	for _, of := range []struct {
		list client.ObjectList
		example
	}{
		{&clusterv1.MachineList{}, example{kind: "Machine", path: "spec.taints"}},
		{&clusterv1.MachineSetList{}, example{kind: "MachineSet", path: "spec.template.spec.taints"}},
	} {
		if err := g.Client.List(ctx, of.list, client.Limit(sample), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %ss: %w", of.kind, err)
		}
		err := meta.EachListItem(of.list, func(item runtime.Object) error {
			object := item.(client.Object)
			known, found := all[object.GetNamespace()]
			if !found && len(all) < voters || found && known.GetDeletionTimestamp() != nil {
				all[object.GetNamespace()] = example{object, of.kind, of.path}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// probe applies a taint to the object in a dry run, and returns the state that the answer shows. The apply is forced, so that other owners
// of the taint do not matter.
func (g *Gate) probe(ctx context.Context, of example) (inherit.TaintPropagation, error) {
	config, path := &unstructured.Unstructured{}, strings.Split(of.path, ".")
	config.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(of.kind))
	config.SetNamespace(of.GetNamespace())
	config.SetName(of.GetName())
	config.SetUID(of.GetUID())
	probe := map[string]any{"key": probeKey, "effect": "PreferNoSchedule", "propagation": "OnInitialization"}
	if err := unstructured.SetNestedSlice(config.Object, []any{probe}, path...); err != nil {
		return inherit.PropagationUnknown, fmt.Errorf("building the probe: %w", err)
	}
	err := g.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(config), client.DryRunAll, client.ForceOwnership,
		client.FieldOwner(probeManager))
	stored, _, _ := unstructured.NestedSlice(config.Object, path...)
	kept := slices.ContainsFunc(stored, func(item any) bool {
		taint, ok := item.(map[string]any)
		return ok && taint["key"] == probeKey
	})
	switch {
	case err == nil && kept:
		return inherit.PropagationEnabled, nil
	case err == nil, refused(err, of.path):
		return inherit.PropagationDisabled, nil
	}
	return inherit.PropagationUnknown, fmt.Errorf("probing with a dry run on %s %s: %w", of.kind, client.ObjectKeyFromObject(of), err)
}

// refused reports whether an answer means that Cluster API refuses all taints, or that its CRD has no field for taints.
func refused(err error, path string) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	status := answer.Status()
	if apierrors.IsInvalid(err) && status.Details != nil {
		return slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
			return cause.Field == path && strings.Contains(cause.Message, featureGate)
		})
	}
	return strings.HasPrefix(status.Message, wrongPatch) && strings.HasSuffix(status.Message, "."+path+noSuchField)
}
