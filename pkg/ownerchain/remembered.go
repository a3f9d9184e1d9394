// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// mostRemembered is how many versions of owners are remembered. Each takes a few kilobytes.
const mostRemembered = 256

// Remembered keeps what the rules make of owners, by the owners' versions: many Machines and Nodes are asked about with the same
// owners (BenchmarkWebhookCPU). What it keeps is shared and must not be changed. nil remembers nothing.
type Remembered struct {
	// desires are what Machines inherit, by Version; templates are what MachineSets will declare, by setVersion.
	desires, templates *lru.Cache
}

type desire struct {
	object   inherit.Object
	problems error
}

// setVersion names all that decides what a MachineSet will declare once it has inherited.
type setVersion struct {
	set, deployment Version
	// cluster and class are zero if the MachineDeployment inherits nothing from a topology.
	cluster, class Version
	taints         inherit.TaintPropagation
}

// Remembering returns a chain that keeps what follows from the versions of owners alone. It is for admission, where each request would
// compute it anew.
func (c *Chain) Remembering() *Chain {
	other := *c
	other.Remembered = &Remembered{desires: lru.New(mostRemembered), templates: lru.New(mostRemembered)}
	return &other
}

// desired returns what Machines of this version desire, which compute returns.
func (r *Remembered) desired(version Version, compute func() (inherit.Object, error)) (inherit.Object, error) {
	if r == nil || version == (Version{}) {
		return compute()
	}
	if known, ok := r.desires.Get(version); ok {
		found := known.(desire) //nolint:forcetypeassert // nothing else is put there
		return found.object, found.problems
	}
	object, problems := compute()
	r.desires.Add(version, desire{object, problems})
	return object, problems
}

// template returns what a MachineSet of this version will declare, which compute returns.
func (r *Remembered) template(version setVersion, compute func() *inherit.Template) *inherit.Template {
	if r == nil || version == (setVersion{}) {
		return compute()
	}
	if known, ok := r.templates.Get(version); ok {
		return known.(*inherit.Template) //nolint:forcetypeassert // nothing else is put there
	}
	template := compute()
	r.templates.Add(version, template)
	return template
}

// setVersionOf returns zero if one of the objects has no version. above are those from which the MachineDeployment inherits.
func setVersionOf(ms *clusterv1.MachineSet, md *clusterv1.MachineDeployment, above []client.Object, policy inherit.Policy) setVersion {
	v := setVersion{set: versionOf(ms), deployment: versionOf(md), taints: policy.ClusterAPITaints}
	known := v.set != Version{} && v.deployment != Version{}
	for i, to := range []*Version{&v.cluster, &v.class} {
		if i < len(above) {
			*to = versionOf(above[i])
			known = known && *to != Version{}
		}
	}
	if !known || len(above) > 2 {
		return setVersion{}
	}
	return v
}
