// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/providers"
)

// evaluateControlPlane applies rule 1.
func (c *Chain) evaluateControlPlane(ctx context.Context, cp *inherit.ControlPlane, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, cp, cluster)
	if err != nil || section == nil {
		return skip(inherit.NothingDeclares), err
	}
	desired, problems := policy.ControlPlane(*section)
	return inherits(desired, problems, func(ctx context.Context) inherit.Sources {
		return c.forSources().byTopology(ctx, cp, clusterLabel(cp), cp)
	}, cluster, class).by(1), nil
}

// evaluateMachineDeployment applies rules 2 and 14.
func (c *Chain) evaluateMachineDeployment(ctx context.Context, md *clusterv1.MachineDeployment, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, md, cluster)
	if err != nil {
		return Decision{}, err
	}
	current := func() inherit.Object { return inherit.OfMachineDeployment(md) }
	sources := c.sources(md, md.Spec.ClusterName, MachineOwner{Object: md})
	if section == nil {
		return standsAlone(current, sources), nil
	}
	desired, problems := policy.MachineDeployment(*section, md)
	return inherits(desired, problems, sources, cluster, class).by(2).tells(current), nil
}

// evaluateMachinePool applies rules 3 and 14.
func (c *Chain) evaluateMachinePool(ctx context.Context, mp *clusterv1.MachinePool, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, mp, cluster)
	if err != nil {
		return Decision{}, err
	}
	current := func() inherit.Object { return inherit.OfMachinePool(mp) }
	sources := c.sources(mp, mp.Spec.ClusterName, MachineOwner{Object: mp})
	if section == nil {
		return standsAlone(current, sources), nil
	}
	desired, problems := policy.MachinePool(*section)
	return inherits(desired, problems, sources, cluster, class).by(3).tells(current), nil
}

// evaluateMachineSet applies rules 5 and 6, or rule 14 to a MachineSet that stands alone.
func (c *Chain) evaluateMachineSet(ctx context.Context, ms *clusterv1.MachineSet, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	sources := func(ctx context.Context) inherit.Sources { return c.forSources().machineSetSources(ctx, ms) }
	if !inherit.OfMachineDeployments(ms) {
		return standsAlone(func() inherit.Object { return inherit.OfMachineSet(ms) }, sources), nil
	}
	md, err := c.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return ownerNotFound(), err
	}
	desired, problems := policy.MachineSet(md, ms)
	decided := inherits(desired, problems, sources, md)
	decided.rule = machineSetRule
	return decided, nil
}

// machineSetRule is rule 5 for a MachineSet's own annotations, and rule 6 for the rest.
func machineSetRule(e inherit.Entry) int {
	if e.Own && e.What == "annotation" {
		return 5
	}
	return 6
}

// evaluateMachine applies rules 4, 8 and 9.
func (c *Chain) evaluateMachine(ctx context.Context, m *clusterv1.Machine, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	owner, err := c.MachineOwner(ctx, m)
	if errors.As(err, new(*providers.NotListedError)) {
		if decided := policy.SkipMachine(m, ownerNotFound().Decision); !decided.Untouched() {
			return Decision{Decision: decided}, nil
		}
	}
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound(), err
	}
	version := owner.versionFor(m, policy)
	desired, problems := c.Remembered.desired(version, func() (inherit.Object, error) { return policy.MachineFrom(owner.Template, m) })
	decided := inherits(desired, problems, func(ctx context.Context) inherit.Sources { return c.forSources().machineSources(ctx, m, owner, nil) })
	decided.TaintsRefused = policy.ClusterAPITaints == inherit.PropagationDisabled
	decided.version = version
	return decided.from(owner), nil
}

func inherits(desired inherit.Object, problems error, sources func(context.Context) inherit.Sources, declaredBy ...client.Object) Decision {
	return Decision{
		Decision: inherit.Decision{Outcome: inherit.Inherits, Desired: desired, Problems: problems}, sources: sources, declaredBy: declaredBy,
	}
}

// from is the owner of the decision's Machine, or of the Machine that the external object belongs to.
func (d Decision) from(owner MachineOwner) Decision {
	d = d.by(owner.rule)
	d.Outcome = owner.Outcome
	if owner.Object != nil {
		d.declaredBy = []client.Object{owner.Object}
	}
	return d
}

// standsAlone is the decision about an object that has no owner. What an owner propagated to it before stays.
func standsAlone(current func() inherit.Object, sources func(context.Context) inherit.Sources) Decision {
	decided := inherits(inherit.Object{}, nil, sources).tells(current)
	decided.Outcome = inherit.NoOwner
	return decided
}

// tells says that rule 14 is about the object, which has this now.
func (d Decision) tells(current func() inherit.Object) Decision {
	d.current = current
	return d
}

// withCapacity adds what the object tells cluster-autoscaler, once it has inherited the rest (rule 14). It is apart from the other
// rules because Nodes, which ask what their Machines' owners will be, have no use for it.
func (d Decision) withCapacity(policy inherit.Policy) Decision {
	if d.current == nil {
		return d
	}
	current := d.current()
	capacity, problems := policy.Capacity(current, d.Desired)
	if d.Outcome == inherit.NoOwner && len(capacity) == 0 && !inherit.TellsCapacity(current) {
		return skip(inherit.NothingDeclares)
	}
	d.Desired.Top, d.Problems = d.Desired.Top.WithYielding(capacity), errors.Join(d.Problems, problems)
	return d
}

// section returns what the topology of the Cluster and its class declare for the object, and the class; nil if they declare
// nothing.
func (c *Chain) section(ctx context.Context, object metav1.Object, cluster *clusterv1.Cluster) (*inherit.Section, *clusterv1.ClusterClass, error) {
	class, err := c.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return nil, nil, err
	}
	return inherit.SectionOf(cluster, class, object), class, nil
}
