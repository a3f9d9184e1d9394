// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machines brings to a Machine what its MachineSet, control plane or MachinePool declares (rules 4, 8 and 9).
type machines struct{ Dependencies }

func (h machines) decide(ctx context.Context, req admission.Request) (answer, error) {
	m, err := decode[capi.Machine](req.Object)
	if err != nil {
		return answer{}, err
	}
	policy := h.Policy()
	cluster, err := h.Chain.Cluster(ctx, req.Namespace, m.Spec.ClusterName)
	if err != nil || policy.LeftAlone(m, cluster) != "" {
		return unmatched(), err
	}
	owner, err := h.Chain.MachineOwner(ctx, m)
	if err != nil || owner.Missing {
		return unmatched(), err
	}
	desired, leftOut := policy.MachineFrom(owner.Template, m)
	c := child{
		object:   m,
		current:  inherit.OfMachine(m),
		desired:  desired,
		declarer: owner.Declarer,
		old:      decodeOld(req, inherit.OfMachine),
	}
	decided, err := inject(req, c)
	decided.warn(leftOut)
	return decided, err
}
