// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// machineSets brings to a MachineSet what its MachineDeployment declares (rule 6).
type machineSets struct{ Dependencies }

func (h machineSets) decide(ctx context.Context, req admission.Request) (answer, error) {
	ms, err := decode[capi.MachineSet](req.Object)
	if err != nil {
		return answer{}, err
	}
	policy := h.Policy()
	cluster, err := h.Chain.Cluster(ctx, req.Namespace, ms.Spec.ClusterName)
	if err != nil || policy.LeftAlone(ms, cluster) != "" {
		return unmatched(), err
	}
	md, err := h.Chain.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return unmatched(), err
	}
	c := child{
		object:   ms,
		current:  inherit.OfMachineSet(ms),
		desired:  policy.MachineSet(md, ms),
		declarer: ownerchain.DeclarerOfMachineSet(ms),
		old:      decodeOld(req, inherit.OfMachineSet),
	}
	return inject(req, c)
}
