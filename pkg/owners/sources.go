// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// NodeSources returns the objects that declare the entries of a Node, with its Machine or MachinePool as the last. The read of the
// Machine's owner may cost an API call.
func (c *Chain) NodeSources(ctx context.Context, from inherit.NodeSource) inherit.Sources {
	if m, ok := from.Object.(*clusterv1.Machine); ok {
		owner, err := c.Reading(max(c.Freshness, FromCachePromptly)).MachineOwner(ctx, m)
		found := machine{m}.sources(ctx, c.Reading(FromCache), Decision{owner: owner})
		found.Err = errors.Join(err, found.Err)
		last := len(found.All) - 1
		found.All = slices.Insert(found.All, last, factsOf(from, m)...)
		return found
	}
	return c.Reading(FromCache).declared(ctx, from.Object, MachineOwner{Object: from.Object})
}

// factsOf returns the facts of a source, as declarations of the objects that have them.
func factsOf(from inherit.NodeSource, m *clusterv1.Machine) (facts []inherit.Declaration) {
	for label, f := range from.Facts {
		said := inherit.Declaration{Ref: from.Ref, Content: inherit.Content{Labels: map[string]string{label: from.Labels[label]}}, Whole: f.Field}
		for _, ref := range ExternalRefs(m) {
			if ref.GroupKind() == f.Kind {
				said.Ref = refTo(ref.Kind, m.Namespace, ref.Name)
			}
		}
		facts = append(facts, said)
	}
	return facts
}

// NodeGroup returns the object whose Nodes do the same work as a Node of this source, and the number of its Nodes, as far as it is known:
// the Machine's MachineDeployment, control plane, MachinePool, or MachineSet that stands alone; the Machine itself if it has no owner.
func (c *Chain) NodeGroup(ctx context.Context, from inherit.NodeSource) (group inherit.Ref, nodes int, err error) {
	found := c.NodeSources(ctx, from)
	if found.Err != nil {
		return inherit.Ref{}, 0, found.Err
	}
	group = from.Ref
	for _, d := range found.All {
		switch d.Object.(type) {
		case *clusterv1.ClusterClass, *clusterv1.Cluster, *metav1.PartialObjectMetadata: // of a PartialObjectMetadata, only the name is known
			continue
		}
		group = d.Ref
		break
	}
	machines, err := c.MachinesBelow(ctx, group.Object)
	if err != nil {
		return inherit.Ref{}, 0, fmt.Errorf("counting the Nodes of %s: %w", group, err)
	}
	for i := range machines {
		if machines[i].Status.NodeRef.Name != "" {
			nodes++
		}
	}
	if mp, ok := group.Object.(*clusterv1.MachinePool); ok {
		nodes = max(nodes, len(mp.Spec.ProviderIDList))
	}
	return group, nodes, nil
}

// declared returns the declarations of an owner and of the objects above it. object is the owner or an object below it: its labels say
// whether there is a topology above, in case the section of the topology cannot be found.
func (c *Chain) declared(ctx context.Context, object metav1.Object, above MachineOwner) inherit.Sources {
	if o, ok := above.Object.(*unstructured.Unstructured); ok {
		layout := inherit.ControlPlaneLayout("", func(path ...string) bool {
			_, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
			return found && err == nil
		})
		return with(c.byTopology(ctx, object, above.controlPlane), inherit.Declaration{
			Ref: inherit.Ref{Kind: o.GetKind(), Object: o}, Paths: layout.Template, Content: above.Template.Content,
		})
	}
	if o, ok := childOf(above.Object).rules.(owner); ok {
		return o.declarations(ctx, c, object)
	}
	return c.byTopology(ctx, object, above.Object)
}

// byTopology returns the declarations of a topology for managed, which may be nil. If the section cannot be found and the object belongs
// to a topology, the topology of its Cluster counts as the source of every entry.
func (c *Chain) byTopology(ctx context.Context, object, managed metav1.Object) inherit.Sources {
	var found inherit.Sources
	if managed != nil {
		cluster, err := c.Cluster(ctx, object.GetNamespace(), ClusterName(object))
		class, classErr := c.ClusterClass(ctx, cluster)
		if class != nil {
			if section := inherit.SectionOf(cluster, class, managed); section != nil {
				return inherit.Sources{All: section.Declarations(cluster, class)}
			}
		}
		found.Err = errors.Join(err, classErr)
	}
	if !isOfTopology(object) {
		return found
	}
	return with(found, inherit.Declaration{Ref: refTo("Cluster", object.GetNamespace(), ClusterName(object)), Whole: "spec.topology", Unread: true})
}

func isOfTopology(object metav1.Object) bool {
	_, owned := object.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]
	return owned
}

func with(above inherit.Sources, one inherit.Declaration) inherit.Sources {
	above.All = append(above.All, one)
	return above
}

// declaration returns the declarations in an object's Machine template or, if it has no template, in its own metadata and spec.
func declaration(kind string, object inherit.Owner, has inherit.Object) inherit.Declaration {
	d := inherit.Declaration{Ref: inherit.Ref{Kind: kind, Object: object}, Paths: has.Layout.Top, Content: has.Top}
	if has.Template != nil {
		d.Paths, d.Content = has.Layout.Template, *has.Template
	}
	return d
}

// refTo refers to an object of which only the name is known.
func refTo(kind, namespace, name string) inherit.Ref {
	return inherit.Ref{Kind: kind, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
}
