// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machineDeployment is a MachineDeployment. A topology declares its own metadata and its Machine template.
type machineDeployment struct{ *clusterv1.MachineDeployment }

func (o machineDeployment) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfMachineDeployment(o.MachineDeployment), nil
}

// evaluate applies rules 2 and 14.
func (o machineDeployment) evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, o.MachineDeployment, cluster)
	if err != nil {
		return Decision{}, err
	}
	decided := standsAlone
	if section != nil {
		desired, dropped := policy.MachineDeployment(*section, o.MachineDeployment)
		decided = inherits(desired, dropped, cluster, class)
	}
	return decided.announcing(inherit.OfMachineDeployment(o.MachineDeployment), o.Spec.Template), nil
}

func (o machineDeployment) sources(ctx context.Context, c *Chain, _ Decision) inherit.Sources {
	return o.declarations(ctx, c, o.MachineDeployment)
}

func (o machineDeployment) declarations(ctx context.Context, c *Chain, below metav1.Object) inherit.Sources {
	return with(c.byTopology(ctx, below, o.MachineDeployment), declaration("MachineDeployment", o.MachineDeployment, inherit.OfMachineDeployment(o.MachineDeployment)))
}

func (o machineDeployment) trim() {
	o.Status = clusterv1.MachineDeploymentStatus{ObservedGeneration: o.Status.ObservedGeneration}
}

// machinePool is a MachinePool. A topology declares its own metadata and its Machine template.
type machinePool struct{ *clusterv1.MachinePool }

func (o machinePool) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfMachinePool(o.MachinePool), nil
}

// evaluate applies rules 3 and 14.
func (o machinePool) evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, o.MachinePool, cluster)
	if err != nil {
		return Decision{}, err
	}
	decided := standsAlone
	if section != nil {
		desired, dropped := policy.MachinePool(*section, o.MachinePool)
		decided = inherits(desired, dropped, cluster, class)
	}
	return decided.announcing(inherit.OfMachinePool(o.MachinePool), clusterv1.MachineTemplateSpec{}), nil
}

func (o machinePool) sources(ctx context.Context, c *Chain, _ Decision) inherit.Sources {
	return o.declarations(ctx, c, o.MachinePool)
}

func (o machinePool) declarations(ctx context.Context, c *Chain, below metav1.Object) inherit.Sources {
	return with(c.byTopology(ctx, below, o.MachinePool), declaration("MachinePool", o.MachinePool, inherit.OfMachinePool(o.MachinePool)))
}

func (o machinePool) index(values map[string][]string) {
	values[providerIDField] = in(o.Spec.ClusterName, o.Spec.ProviderIDList)
}

func (o machinePool) trim() {
	o.Status = clusterv1.MachinePoolStatus{ObservedGeneration: o.Status.ObservedGeneration}
}

// machineSet is a MachineSet.
type machineSet struct{ *clusterv1.MachineSet }

func (o machineSet) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfMachineSet(o.MachineSet), nil
}

// evaluate applies rule 5 to a MachineSet's own annotations and rule 6 to its other entries, or rule 14 to a MachineSet that stands alone.
func (o machineSet) evaluate(ctx context.Context, c *Chain, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	if !inherit.OfMachineDeployments(o.MachineSet) {
		return standsAlone.announcing(inherit.OfMachineSet(o.MachineSet), o.Spec.Template), nil
	}
	md, err := c.MachineDeployment(ctx, o.MachineSet)
	if err != nil || md == nil {
		return ownerNotFound, err
	}
	desired, dropped := policy.MachineSet(md, o.MachineSet)
	return inherits(desired, dropped, md), nil
}

// sources returns the sources of the MachineSet. The source of its own annotations differs from the source of its other entries (rule 5).
// The MachineSet itself is the source of its annotations for cluster-autoscaler.
func (o machineSet) sources(ctx context.Context, c *Chain, _ Decision) inherit.Sources {
	found := o.declarations(ctx, c, o.MachineSet)
	if last := len(found.All) - 2; last >= 0 && found.All[last].Whole == "" {
		found.All[last].Metadata = &inherit.Content{}
		if md, ok := found.All[last].Object.(*clusterv1.MachineDeployment); ok {
			found.All[last].Metadata.Annotations = md.Annotations
		}
	}
	return found
}

func (o machineSet) declarations(ctx context.Context, c *Chain, below metav1.Object) inherit.Sources {
	return with(o.above(ctx, c, below), declaration("MachineSet", o.MachineSet, inherit.OfMachineSet(o.MachineSet)))
}

// above returns the declarations of the MachineSet's MachineDeployment and of the objects above it.
func (o machineSet) above(ctx context.Context, c *Chain, below metav1.Object) inherit.Sources {
	md, err := c.MachineDeployment(ctx, o.MachineSet)
	if err == nil && md != nil {
		return machineDeployment{md}.declarations(ctx, c, below)
	}
	found := c.byTopology(ctx, below, nil)
	found.Err = errors.Join(err, found.Err)
	if ref := metav1.GetControllerOfNoCopy(o.MachineSet); ref != nil {
		return with(found, inherit.Declaration{
			Ref: refTo(ref.Kind, o.Namespace, ref.Name), Paths: inherit.OfMachineSet(o.MachineSet).Layout.Template, Unread: true,
		})
	}
	return found
}

func (o machineSet) index(values map[string][]string) { values[ownerField] = ownerUID(o) }

func (o machineSet) trim() {
	o.Status = clusterv1.MachineSetStatus{ObservedGeneration: o.Status.ObservedGeneration}
}
