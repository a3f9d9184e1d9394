// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// Explainer tells where everything on an object comes from.
type Explainer struct {
	// Nodes connects to the workload cluster of a Cluster. Without it, only Nodes of the management cluster can be explained.
	Nodes func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error)
	// Cluster is the one whose Nodes are meant, if the user has said so.
	Cluster types.NamespacedName
	// Namespace is the only one in which Machines name a Node, if the user has said so.
	Namespace string

	// Key is the only key of interest, if the user has named one.
	Key string

	settings settings.Settings
	prefetch func(context.Context) error
	reader   client.Reader
	chain    owners.Chain
}

// New returns an Explainer that reads the management cluster of a server with these settings.
func New(from *snapshot.Snapshot, server settings.Settings) *Explainer {
	return &Explainer{reader: from, chain: *from.Chain(), settings: server, prefetch: from.Prefetch}
}

// Explain returns where everything on an object comes from.
func (x *Explainer) Explain(ctx context.Context, gvk schema.GroupVersionKind, key types.NamespacedName) (*Explanation, error) {
	e, err := x.explain(ctx, gvk, key)
	if err != nil {
		return nil, err
	}
	e.shareReasons()
	e.name = cli.NameOf(gvk.GroupKind(), key.Name)
	return e, nil
}

func (x *Explainer) explain(ctx context.Context, gvk schema.GroupVersionKind, key types.NamespacedName) (*Explanation, error) {
	switch kind := gvk.GroupKind(); {
	case IsNode(gvk):
		return x.findNode(ctx, key.Name)
	case inherit.IsTemplate(kind.Kind):
	case kind.Group == inherit.ControlPlaneGroup:
		return x.controlPlane(ctx, gvk, key)
	case kind.Group == clusterv1.GroupVersion.Group:
		return x.ofClusterAPI(ctx, kind, key)
	case slices.Contains(x.settings.Config.ProviderGroups, kind.Group):
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)
		return explain(ctx, x, owners.ExternalObjects, gvk.Kind, key, object)
	}
	return nil, cannotExplain(gvk.GroupKind())
}

// ofClusterAPI explains an object of Cluster API's own kinds.
func (x *Explainer) ofClusterAPI(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*Explanation, error) {
	switch kind.Kind {
	case "Cluster":
		cluster := &clusterv1.Cluster{}
		if err := x.get(ctx, kind.Kind, key, cluster); err != nil {
			return nil, err
		}
		return declares(inherit.Ref{Kind: kind.Kind, Object: cluster}, "name", rules.OfCluster(cluster))
	case "ClusterClass":
		class := &clusterv1.ClusterClass{}
		if err := x.get(ctx, kind.Kind, key, class); err != nil {
			return nil, err
		}
		return declares(inherit.Ref{Kind: kind.Kind, Object: class}, "class", rules.OfClass(class))
	case "MachineDeployment":
		return explain(ctx, x, owners.MachineDeployments, kind.Kind, key, &clusterv1.MachineDeployment{})
	case "MachinePool":
		return explain(ctx, x, owners.MachinePools, kind.Kind, key, &clusterv1.MachinePool{})
	case "MachineSet":
		return explain(ctx, x, owners.MachineSets, kind.Kind, key, &clusterv1.MachineSet{})
	case "Machine":
		return explain(ctx, x, owners.Machines, kind.Kind, key, &clusterv1.Machine{})
	}
	return nil, cannotExplain(kind)
}

func cannotExplain(kind schema.GroupKind) error {
	return fmt.Errorf("cannot explain a %s: choose a cluster, clusterclass, control plane, machinedeployment, machinepool, machineset, machine or "+
		"node, or the infrastructure or bootstrap of a machine in an API group that the server knows (--additional-provider-groups); "+
		"if another API group has the same name, write it like machines.%s",
		kind, clusterv1.GroupVersion.Group)
}

// IsNode reports whether a kind is that of Nodes.
func IsNode(gvk schema.GroupVersionKind) bool {
	return gvk.GroupKind() == corev1.SchemeGroupVersion.WithKind("Node").GroupKind()
}

func (x *Explainer) get(ctx context.Context, kind string, key types.NamespacedName, into client.Object) error {
	if err := x.reader.Get(ctx, key, into); err != nil {
		return fmt.Errorf("getting %s %s: %w", kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	return nil
}

// controlPlane explains a control plane of any provider.
func (x *Explainer) controlPlane(ctx context.Context, gvk schema.GroupVersionKind, key types.NamespacedName) (*Explanation, error) {
	ref := &metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: key.Name}
	_, cp, err := x.chain.ControlPlane(ctx, key.Namespace, ref)
	if err != nil {
		return nil, err
	}
	if cp == nil {
		return nil, fmt.Errorf("there is no %s %s", gvk.Kind, key)
	}
	return compared(ctx, x, owners.ControlPlanes, inherit.Ref{Kind: gvk.Kind, Object: cp}, cp)
}

func explain[P client.Object](
	ctx context.Context, x *Explainer, kind owners.Kind, name string, key types.NamespacedName, object P,
) (*Explanation, error) {
	if err := x.get(ctx, name, key, object); err != nil {
		return nil, err
	}
	return compared(ctx, x, kind, inherit.Ref{Kind: name, Object: object}, object)
}

// compared compares what an object has with what is decided about it, and with what the next write would change.
func compared[P client.Object](ctx context.Context, x *Explainer, kind owners.Kind, ref inherit.Ref, object P) (*Explanation, error) {
	current, err := kind.Content(ctx, &x.chain, object)
	if err != nil {
		return nil, err
	}
	policy := x.settings.Policy()
	var notes []string
	if why, other := x.settings.LeavesOut(object.GetNamespace()); other {
		notes = append(notes, leftAlone(why))
		policy.SkipNothing = true
	}
	decided, err := kind.Evaluate(ctx, &x.chain, object, policy)
	if err == nil && decided.Outcome == inherit.Skipped {
		notes = append(notes, leftAlone(decided.Reason))
		policy.SkipNothing = true
		decided, err = kind.Evaluate(ctx, &x.chain, object, policy)
	}
	sources := decided.Sources(ctx)
	notes = append(notes, unfollowed(ref, decided.Outcome, err, sources)...)
	var desired inherit.Object
	var changes []managedfields.Change
	if err == nil && !decided.Untouched() {
		plan, err := managedfields.New(object, current, decided.Decision, nil)
		if err != nil {
			return nil, fmt.Errorf("comparing %s with what it inherits: %w", ref, err)
		}
		if desired, err = widest(ctx, x, kind, object, policy, decided); err != nil {
			return nil, err
		}
		admitted, refused := inherit.Fit(current, desired, func() inherit.Object { return current }, nil)
		desired, changes = admitted, plan.Changes()
		notes = append(notes, leftOut(sources, decided.Problems(), refused)...)
		notes = append(notes, whereToEdit(ref, sources)...)
	}
	capacity := func(e inherit.Entry) bool { return e.Own && decided.Desired.Top.Claims[e.Name] == inherit.Yielding }
	e, err := explanation(object, ref.String(), notes, places(current, desired, changes, follow(ref, sources, capacity))...)
	if err != nil {
		return nil, err
	}
	e.owners = ownersIn(sources, ref)
	return addAbsences(ctx, x, x.guessed(e), kind, ref, object, x.Key)
}

// widest returns what an object may have inherited: as long as it is not known whether Cluster API propagates taints, what the object
// has counts as inherited if it would be with the gate on.
func widest[P client.Object](
	ctx context.Context, x *Explainer, kind owners.Kind, object P, policy inherit.Policy, decided owners.Decision,
) (inherit.Object, error) {
	if policy.ClusterAPITaints != inherit.PropagationUnknown {
		return decided.Desired, nil
	}
	policy.ClusterAPITaints, policy.PaceEviction = inherit.PropagationEnabled, false
	wide, err := kind.Evaluate(ctx, &x.chain, object, policy)
	return wide.Desired, err
}

// guessed adds a note to an explanation with taints that are shown by a guess.
func (x *Explainer) guessed(e *Explanation) *Explanation {
	if x.settings.Propagation != inherit.PropagationUnknown {
		return e
	}
	for _, entry := range e.Entries {
		if entry.Kind == Taint || entry.Kind == TemplateTaint {
			e.Notes = append(e.Notes, "It is not known whether Cluster API propagates taints (its feature gate MachineTaintPropagation): "+
				"taints are shown as if it did.")
			break
		}
	}
	return e
}
