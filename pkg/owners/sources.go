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

// quiet returns a chain that reads only the cache, and counts nothing. The source of a warning is not worth an API call: an owner
// that is not cached is named without its content.
func (c *Chain) quiet() *Chain {
	quiet := *c
	quiet.AskMissing, quiet.fresh, quiet.Count = false, false, nil
	return &quiet
}

// NodeSources returns the objects that declare the entries of a Node, with its Machine or MachinePool as the last. The read of the
// Machine's owner may cost an API call.
func (c *Chain) NodeSources(ctx context.Context, from inherit.NodeSource) inherit.Sources {
	if m, ok := from.Object.(*clusterv1.Machine); ok {
		bounded, cancel := c.bounded(ctx)
		defer cancel()
		owner, err := c.MachineOwner(bounded, m)
		found := c.quiet().machineSources(ctx, m, owner, err)
		last := len(found.All) - 1
		found.All = slices.Insert(found.All, last, factsOf(from, m)...)
		return found
	}
	return c.quiet().declared(ctx, from.Object, MachineOwner{Object: from.Object})
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

// sourcesBy returns a function that finds the sources of an object by its owner, or by the object itself if it has a Machine template.
func (c *Chain) sourcesBy(object metav1.Object, owner MachineOwner) func(context.Context) inherit.Sources {
	return func(ctx context.Context) inherit.Sources { return c.quiet().declared(ctx, object, owner) }
}

// machineSources returns the sources of a Machine. err says that its owner could not be read.
func (c *Chain) machineSources(ctx context.Context, m *clusterv1.Machine, owner MachineOwner, err error) inherit.Sources {
	found := c.declared(ctx, m, owner)
	found.Err = errors.Join(err, found.Err)
	itself := declaration("Machine", m, inherit.OfMachine(m))
	itself.Itself = true
	found.All = append(found.All, itself)
	return found
}

// machineSetSources returns the sources of a MachineSet. The source of its own annotations differs from the source of its other entries
// (rule 5). The MachineSet itself is the source of its annotations for cluster-autoscaler.
func (c *Chain) machineSetSources(ctx context.Context, ms *clusterv1.MachineSet) inherit.Sources {
	found := c.declared(ctx, ms, MachineOwner{Object: ms})
	if last := len(found.All) - 2; last >= 0 && found.All[last].Whole == "" {
		found.All[last].Metadata = &inherit.Content{}
		if md, ok := found.All[last].Object.(*clusterv1.MachineDeployment); ok {
			found.All[last].Metadata.Annotations = md.Annotations
		}
	}
	return found
}

// declared returns the declarations of an owner and of the objects above it. object is the owner or an object below it: its labels say
// whether there is a topology above, in case the section of the topology cannot be found.
func (c *Chain) declared(ctx context.Context, object metav1.Object, owner MachineOwner) inherit.Sources {
	switch o := owner.Object.(type) {
	case *clusterv1.MachineSet:
		return with(c.aboveMachineSet(ctx, object, o), declaration("MachineSet", o, inherit.OfMachineSet(o)))
	case *clusterv1.MachineDeployment:
		return with(c.byTopology(ctx, object, o), declaration("MachineDeployment", o, inherit.OfMachineDeployment(o)))
	case *clusterv1.MachinePool:
		return with(c.byTopology(ctx, object, o), declaration("MachinePool", o, inherit.OfMachinePool(o)))
	case *unstructured.Unstructured:
		layout := inherit.ControlPlaneLayout("", func(path ...string) bool {
			_, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
			return found && err == nil
		})
		return with(c.byTopology(ctx, object, owner.controlPlane), inherit.Declaration{
			Ref: inherit.Ref{Kind: o.GetKind(), Object: o}, Paths: layout.Template, Content: owner.Template.Content,
		})
	}
	return c.byTopology(ctx, object, owner.Object)
}

// aboveMachineSet returns the declarations of a MachineSet's MachineDeployment and of the objects above it.
func (c *Chain) aboveMachineSet(ctx context.Context, object metav1.Object, ms *clusterv1.MachineSet) inherit.Sources {
	md, err := c.MachineDeployment(ctx, ms)
	if err == nil && md != nil {
		return c.declared(ctx, object, MachineOwner{Object: md})
	}
	found := c.byTopology(ctx, object, nil)
	found.Err = errors.Join(err, found.Err)
	if ref := metav1.GetControllerOfNoCopy(ms); ref != nil {
		return with(found, inherit.Declaration{
			Ref: refTo(ref.Kind, ms.Namespace, ref.Name), Paths: inherit.OfMachineSet(ms).Layout.Template, Unread: true,
		})
	}
	return found
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
