// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// forSources returns a chain that looks into the caches only, and counts nothing. To say in a warning where something is
// declared costs no API call: an owner that is not cached is named without its content.
func (c *Chain) forSources() *Chain {
	return c.with(cachedBehind(c.Reader).Reader)
}

// NodeSources returns the objects that declare what a Node inherits, its Machine or MachinePool as the last.
func (c *Chain) NodeSources(ctx context.Context, from inherit.NodeSource) inherit.Sources {
	switch object := from.Object.(type) {
	case *capi.Machine:
		return c.MachineSources(ctx, object)
	case *capi.MachinePool:
		return c.sourcesOfPool(object)(ctx)
	}
	return inherit.Sources{}
}

// MachineSources returns the objects that declare what a Machine has for its Node, the Machine itself as the last. The Machine's
// owner may cost an API call.
func (c *Chain) MachineSources(ctx context.Context, m *capi.Machine) inherit.Sources {
	owner, err := c.MachineOwner(ctx, m)
	if err != nil {
		owner = MachineOwner{}
	}
	return c.forSources().machineSources(ctx, m, owner)
}

func (c *Chain) machineSources(ctx context.Context, m *capi.Machine, owner MachineOwner) inherit.Sources {
	return inherit.Sources{All: append(c.ofOwner(ctx, m, m.Spec.ClusterName, owner), inherit.Declaration{
		Object: Name("Machine", m), Itself: true,
		Paths: capi.MachineLayout(m.GroupVersionKind().Version).Top, Content: inherit.OfMachine(m).Top,
	})}
}

// sourcesOfSet returns what finds the sources of a MachineSet: its own annotations come from elsewhere than the rest (rule 5).
// What it tells cluster-autoscaler it declares itself.
func (c *Chain) sourcesOfSet(ms *capi.MachineSet) func(context.Context) inherit.Sources {
	return func(ctx context.Context) inherit.Sources {
		c := c.forSources()
		itself := inherit.Declaration{Object: Name("MachineSet", ms), Paths: templateOf(ms), Content: *inherit.OfMachineSet(ms).Template}
		found := inherit.Sources{All: append(c.ofMachineSet(ctx, ms, ms), itself)}
		if len(found.All) == 1 {
			return found
		}
		above := found.All[:len(found.All)-1]
		md := above[len(above)-1]
		if md.Whole != "" {
			return found
		}
		md.Paths = capi.Paths{Metadata: []string{"metadata"}}
		if known, err := c.MachineDeployment(ctx, ms); err == nil && known != nil {
			md.Content = inherit.OfMachineDeployment(known).Top
		}
		found.Own = append(slices.Clone(above[:len(above)-1]), md)
		return found
	}
}

// sourcesOfDeployment and sourcesOfPool return what finds the sources of a MachineDeployment or MachinePool: a topology, and for
// what it tells cluster-autoscaler its own template.
func (c *Chain) sourcesOfDeployment(md *capi.MachineDeployment) func(context.Context) inherit.Sources {
	return func(ctx context.Context) inherit.Sources {
		return inherit.Sources{All: append(c.forSources().ofMachineDeployment(ctx, md, md), inherit.Declaration{
			Object: Name("MachineDeployment", md), Paths: templateOf(md), Content: *inherit.OfMachineDeployment(md).Template,
		})}
	}
}

func (c *Chain) sourcesOfPool(mp *capi.MachinePool) func(context.Context) inherit.Sources {
	return func(ctx context.Context) inherit.Sources {
		return inherit.Sources{All: c.forSources().ofOwner(ctx, mp, mp.Spec.ClusterName, MachineOwner{Object: mp})}
	}
}

// ofOwner are the declarations of the owner of a Machine, and of those above it. object is the Machine or one beside it.
func (c *Chain) ofOwner(ctx context.Context, object metav1.Object, cluster string, owner MachineOwner) []inherit.Declaration {
	switch o := owner.Object.(type) {
	case *capi.MachineSet:
		return append(c.ofMachineSet(ctx, object, o), inherit.Declaration{
			Object: Name("MachineSet", o), Paths: templateOf(o), Content: inherit.TemplateOfMachineSet(o).Content,
		})
	case *capi.MachinePool:
		return append(declaredByTopology(ctx, c, object, o, o.Spec.ClusterName, inherit.MachinePools, inherit.SectionOfMachinePool), inherit.Declaration{
			Object: Name("MachinePool", o), Paths: templateOf(o), Content: inherit.TemplateOfMachinePool(o).Content,
		})
	case *unstructured.Unstructured:
		cp := &capi.ControlPlane{
			TypeMeta:   metav1.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels()},
		}
		layout := capi.ControlPlaneLayout("", func(path ...string) bool {
			_, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
			return found && err == nil
		})
		return append(declaredByTopology(ctx, c, object, cp, clusterLabel(o), inherit.ControlPlanes, inherit.SectionOfControlPlane), inherit.Declaration{
			Object: Name(o.GetKind(), o), Paths: layout.Template, Content: owner.Template.Content,
		})
	}
	return declaredByTopology[*capi.MachineDeployment](ctx, c, object, nil, cluster, "", nil)
}

// ofMachineSet are the declarations of the MachineDeployment of a MachineSet, and of those above it. object is the MachineSet
// or one below it.
func (c *Chain) ofMachineSet(ctx context.Context, object metav1.Object, ms *capi.MachineSet) []inherit.Declaration {
	md, err := c.MachineDeployment(ctx, ms)
	if err == nil && md != nil {
		return append(c.ofMachineDeployment(ctx, object, md), inherit.Declaration{
			Object: Name("MachineDeployment", md), Paths: templateOf(md), Content: *inherit.OfMachineDeployment(md).Template,
		})
	}
	all := declaredByTopology[*capi.MachineDeployment](ctx, c, object, nil, ms.Spec.ClusterName, "", nil)
	if ref := metav1.GetControllerOfNoCopy(ms); ref != nil {
		named := &metav1.ObjectMeta{Namespace: ms.Namespace, Name: ref.Name}
		all = append(all, inherit.Declaration{Object: Name(ref.Kind, named), Paths: templateOf(ms), Unread: true})
	}
	return all
}

func (c *Chain) ofMachineDeployment(ctx context.Context, object metav1.Object, md *capi.MachineDeployment) []inherit.Declaration {
	return declaredByTopology(ctx, c, object, md, md.Spec.ClusterName, inherit.MachineDeployments, inherit.SectionOfMachineDeployment)
}

// templateOf returns the paths of the Machine template in a MachineDeployment, MachineSet or MachinePool.
func templateOf(owner client.Object) capi.Paths {
	return capi.WorkersLayout(owner.GetObjectKind().GroupVersionKind().Version).Template
}

// declaredByTopology are the declarations of a topology for what it manages, which is managed if object is. Where the section cannot
// be found, the topology as a whole is taken to declare everything.
func declaredByTopology[T metav1.Object](
	ctx context.Context, c *Chain, object metav1.Object, managed T, name string, list inherit.SectionList,
	of func(*capi.Cluster, *capi.ClusterClass, T) *inherit.Section,
) []inherit.Declaration {
	whole := topologyOf(object, name)
	if of != nil {
		cluster, err := c.Cluster(ctx, object.GetNamespace(), name)
		if err == nil && cluster != nil {
			class, err := c.ClusterClass(ctx, cluster)
			if err == nil && class != nil {
				if section := of(cluster, class, managed); section != nil {
					return section.Declarations(list, cluster, class)
				}
			}
		}
	}
	if whole == "" {
		return nil
	}
	cluster := &metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: name}
	return []inherit.Declaration{{Object: Name("Cluster", cluster), Whole: "spec.topology", Unread: true}}
}
