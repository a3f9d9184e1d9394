// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// machines brings to a Machine what its MachineSet declares (rule 8).
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
	ms, err := h.Chain.MachineSet(ctx, m)
	if err != nil {
		return answer{}, err
	}
	desired, leftOut := policy.Machine(ms, m)
	c := child{
		object:   m,
		current:  inherit.OfMachine(m),
		desired:  desired,
		declarer: ownerchain.DeclarerOf(m, ms),
		old:      decodeOld(req, inherit.OfMachine),
	}
	decided, err := inject(req, c)
	decided.warn(leftOut)
	return decided, err
}
