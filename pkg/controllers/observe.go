// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// observe counts and reports the changes that a plan would write, instead of the write.
func (d *Dependencies) observe(object client.Object, gvk schema.GroupVersionKind, p planned) {
	if !p.due() {
		return
	}
	var adds, removes []string
	for _, change := range p.Changes() {
		d.Metrics.WouldWrite(metrics.Kind(gvk.Group, gvk.Kind), change.What)
		if change.Value == nil {
			removes = append(removes, fmt.Sprint(change))
		} else {
			adds = append(adds, fmt.Sprint(change))
		}
	}
	d.wouldWrite(object, "", adds, removes)
}

// observeNode counts the changes that a plan would write to the Node, and reports them on its Machine or MachinePool. NoExecute taints
// would come sooner or later.
func (r *nodes) observeNode(v *visit, p owners.NodePlan) {
	p.NodePlan = v.policy.PlanNode(v.node, p.Source, inherit.Turn{OpensGates: true})
	names := func(keys []inherit.NodeKey) (all []string) {
		for _, key := range keys {
			r.Metrics.WouldWrite("Node", key.What)
			all = append(all, fmt.Sprint(key))
		}
		return all
	}
	adds, removes := names(p.Added), names(p.Removed)
	r.wouldWrite(p.Source.Object, " on Node "+v.Name, adds, removes)
}

// wouldWrite records an Event on the object about additions, and another about removals. Their actions differ, because a recorder treats
// Events with the same reason and action as a series, and sends a series only every few minutes.
func (d *Dependencies) wouldWrite(object runtime.Object, where string, adds, removes []string) {
	for action, keys := range map[string][]string{"Add": adds, "Remove": removes} {
		if len(keys) > 0 {
			d.Recorder.Eventf(object, nil, corev1.EventTypeNormal, reasonWouldWrite, action, "Observing only; would %s %s%s",
				strings.ToLower(action), strings.Join(keys, ", "), where)
		}
	}
}
