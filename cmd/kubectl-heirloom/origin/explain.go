// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// Explainer tells where everything on an object comes from.
type Explainer struct {
	// ManagementCluster is the Cluster of the management cluster itself, where the user has said which that is.
	ManagementCluster types.NamespacedName

	reader  client.Reader
	chain   ownerchain.Chain
	schemas ownerchain.Schemas
}

// New returns an Explainer that reads the management cluster.
func New(from *snapshot.Snapshot) *Explainer {
	return &Explainer{reader: from, schemas: from.Schemas(), chain: *from.Chain()}
}

// Explain returns where everything on an object comes from.
func (x *Explainer) Explain(ctx context.Context, gvk schema.GroupVersionKind, key types.NamespacedName) (*Explanation, error) {
	switch kind := gvk.GroupKind(); {
	case kind == corev1.SchemeGroupVersion.WithKind("Node").GroupKind():
		node := &corev1.Node{}
		if err := x.get(ctx, gvk.Kind, key, node); err != nil {
			return nil, err
		}
		return x.node(ctx, node)
	case inherit.IsTemplate(kind.Kind):
	case kind.Group == capi.ControlPlaneGroup:
		return x.controlPlane(ctx, gvk, key)
	case kind.Group == clusterv1.GroupVersionInfrastructure.Group, kind.Group == clusterv1.GroupVersionBootstrap.Group:
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)
		return explain(ctx, x, ownerchain.ExternalObjects(), gvk.Kind, key, object)
	case kind.Group != clusterv1.GroupVersion.Group:
	case kind.Kind == "MachineDeployment":
		return explain(ctx, x, ownerchain.MachineDeployments(), kind.Kind, key, &capi.MachineDeployment{})
	case kind.Kind == "MachinePool":
		return explain(ctx, x, ownerchain.MachinePools(), kind.Kind, key, &capi.MachinePool{})
	case kind.Kind == "MachineSet":
		return explain(ctx, x, ownerchain.MachineSets(), kind.Kind, key, &capi.MachineSet{})
	case kind.Kind == "Machine":
		return explain(ctx, x, ownerchain.Machines(), kind.Kind, key, &capi.Machine{})
	}
	return nil, fmt.Errorf("cannot explain a %s: choose a control plane, machinedeployment, machinepool, machineset, machine or node, or the "+
		"infrastructure or bootstrap of a machine; if another API group has the same name, write it like machines.%s", gvk.GroupKind(), clusterv1.GroupVersion.Group)
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
	return compared(ctx, x, ownerchain.ControlPlanes(), inherit.Ref{Kind: gvk.Kind, Object: cp}, cp)
}

func explain[P client.Object](
	ctx context.Context, x *Explainer, kind ownerchain.Kind[P], name string, key types.NamespacedName, object P,
) (*Explanation, error) {
	if err := x.get(ctx, name, key, object); err != nil {
		return nil, err
	}
	return compared(ctx, x, kind, inherit.Ref{Kind: name, Object: object}, object)
}

// compared compares what an object has with what is decided about it. The rules are applied as widely as they can
// be in force, because only what the object has is looked up: taints flow as if Cluster API propagated them.
func compared[P client.Object](ctx context.Context, x *Explainer, kind ownerchain.Kind[P], ref inherit.Ref, object P) (*Explanation, error) {
	current, err := kind.Content(ctx, x.schemas, object)
	if err != nil {
		return nil, err
	}
	policy := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	decided, err := kind.Evaluate(ctx, &x.chain, object, policy)
	var notes []string
	if err == nil && decided.Outcome == inherit.Skipped {
		notes = append(notes, leftAlone(decided.Reason))
		policy.SkipNothing = true
		decided, err = kind.Evaluate(ctx, &x.chain, object, policy)
	}
	sources := decided.Sources(ctx)
	notes = append(notes, unfollowed(ref, decided.Outcome, err, sources)...)
	if err == nil && !decided.Untouched() {
		_, refused := inherit.Admissible(current, decided.Desired, func() inherit.Object { return current }, nil)
		notes = append(notes, leftOut(sources, decided.Problems, refused)...)
		notes = append(notes, whereToEdit(ref, sources)...)
	}
	return explanation(object, ref.String(), notes, places(current, decided.Desired, sources)...)
}
