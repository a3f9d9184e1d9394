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
)

// observe reports what a plan would write, in place of the write.
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

// observeNode reports on the Node's Machine or MachinePool what would be written to the Node, in place of the write.
func (r *nodes) observeNode(node *corev1.Node, p nodePlan) {
	if !p.due() {
		return
	}
	names := func(keys []inherit.NodeKey) (all []string) {
		for _, key := range keys {
			r.Metrics.WouldWrite("Node", key.What)
			all = append(all, fmt.Sprint(key))
		}
		return all
	}
	adds, removes := names(inherit.Brought(p.current, p.result)), names(inherit.Removed(p.current, p.result))
	r.wouldWrite(p.from.Object, " on Node "+node.Name, adds, removes)
}

// wouldWrite reports on an object what would be added and removed, in an Event each: the recorder takes Events of the same reason and action
// for the same, and sends them again only every few minutes.
func (d *Dependencies) wouldWrite(object runtime.Object, where string, adds, removes []string) {
	for action, keys := range map[string][]string{"Add": adds, "Remove": removes} {
		if len(keys) > 0 {
			d.Recorder.Eventf(object, nil, corev1.EventTypeNormal, reasonWouldWrite, action, "Observing only; would %s %s%s",
				strings.ToLower(action), strings.Join(keys, ", "), where)
		}
	}
}
