// SPDX-License-Identifier: Apache-2.0

package inherit

import "github.com/heirloom-dev/heirloom/pkg/capi"

// ClusterLabels returns the labels that a Cluster declares for all its MachineDeployments: those of the domain x.example.
func ClusterLabels(cluster *capi.Cluster) map[string]string {
	return filter(cluster.Labels, func(key string) bool { return within(domain(key), "x.example") })
}

// WithClusterLabels returns what a MachineDeployment inherits with the labels of its Cluster. What its topology declares wins.
func (o Object) WithClusterLabels(cluster *capi.Cluster, md *capi.MachineDeployment) Object {
	labels := withoutSelected(ClusterLabels(cluster), md.Spec.Selector)
	template := Content{}
	if o.Template != nil {
		template = *o.Template
	}
	o.Top.Labels, template.Labels = mergeMaps(labels, o.Top.Labels), mergeMaps(labels, template.Labels)
	o.Template = &template
	return o
}
