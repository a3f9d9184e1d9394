// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Version names what an owner declares at one time for objects of one kind. Decisions of the same Version desire the same, so what
// follows from that can be kept. The zero Version names nothing.
type Version struct {
	owner           types.UID
	resourceVersion string
	// taints and controlPlane are the rest of what decides about a Machine. They do not matter to external objects.
	taints       inherit.TaintPropagation
	controlPlane bool
	external     bool
}

// Version names what is desired. It is zero if that depends on more than on the owner.
func (d Decision) Version() Version {
	return d.version
}

// versionFor is the Version of what the owner declares for a Machine. Taints that are declared by annotation depend on the Machine.
func (o MachineOwner) versionFor(m *clusterv1.Machine, policy inherit.Policy) Version {
	if o.Template == nil || inherit.AnnotatesTaints(m.Annotations) || inherit.AnnotatesTaints(o.Template.Annotations) {
		return Version{}
	}
	v := versionOf(o.Object)
	if v != (Version{}) {
		v.taints, v.controlPlane = policy.ClusterAPITaints, inherit.IsControlPlane(m)
	}
	return v
}

// versionForExternal is the Version of what the owner declares for a Machine's external objects.
func (o MachineOwner) versionForExternal() Version {
	v := versionOf(o.Object)
	v.external = v != Version{}
	return v
}

func versionOf(owner client.Object) Version {
	if owner == nil || owner.GetUID() == "" || owner.GetResourceVersion() == "" {
		return Version{}
	}
	return Version{owner: owner.GetUID(), resourceVersion: owner.GetResourceVersion()}
}
