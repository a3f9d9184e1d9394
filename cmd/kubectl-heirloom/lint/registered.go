// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/bootstrap"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// machines are the Machines of a pool, with the declarations for them and the topology above.
type machines struct {
	object   client.Object
	cluster  *clusterv1.Cluster
	class    *clusterv1.ClusterClass
	declared []inherit.Declaration
}

// registered reports the labels and taints with which the kubelets of a pool register, although the declarations of the pool give them to its
// Nodes. m is a Machine of the pool, and node a new Node of the Machine.
func (l *linter) registered(p machines, m *clusterv1.Machine, node inherit.NodeState) {
	config := l.configOf(p)
	if config == nil {
		return
	}
	s, all := &subject{Object: config}, bootstrap.Of(config.Object)
	becomes := l.Policy.Of(p.cluster, p.class).PlanNode(inherit.ReadNode(nodeOf(all), time.Time{}), inherit.SourceOfMachine(m), inherit.Turn{}).Result
	for _, d := range all {
		value, declares := valueOf(node, d.Entry)
		from := inherit.Sources{All: p.declared}.Of(d.Entry)
		where := fmt.Sprintf("%s (%s)", nameOf(from.Kind, from.Object), from.Field)
		key, _, _ := strings.Cut(d.Name, ":")
		remove := "Remove it here with the next upgrade"
		if _, leads := p.object.(*inherit.ControlPlane); leads && strings.HasSuffix(d.Field, "nodeRegistration.taints") {
			remove += " (keep the list, even if it is empty: without the list, kubeadm adds its default taint)"
		}
		other := slices.IndexFunc(node.Taints, func(t corev1.Taint) bool { return d.What == "taint" && t.Key == key })
		switch {
		case declares && (d.Unknown() || value == d.Value):
			l.found(registeredTwice, s, d.Field, remove+".",
				"%s %s is declared twice: the kubelet registers with it, and Heirloom keeps it, because %s declares it", d.What, d.Name, where)
		case declares:
			wins, _ := valueOf(becomes, d.Entry)
			l.found(registeredOtherwise, s, d.Field, remove+", or correct one of the values.",
				"the kubelet registers with value %q of %s %s, but %s declares %q: the Node ends with %q", d.Value, d.What, d.Name, where, value, wins)
		case other >= 0:
			l.found(registeredOtherwise, s, d.Field, remove+", or correct one of the effects.",
				"the kubelet registers with taint %s, but the pool declares %s: the Node has both", d.Name, taint.IDOf(node.Taints[other]))
		}
	}
}

// nodeOf returns a Node as its kubelet registers it.
func nodeOf(all []bootstrap.Declaration) *corev1.Node {
	node := &corev1.Node{}
	node.Labels = map[string]string{}
	for _, d := range all {
		if key, effect, isTaint := strings.Cut(d.Name, ":"); isTaint {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: d.Value, Effect: corev1.TaintEffect(effect)})
		} else {
			node.Labels[d.Name] = d.Value
		}
	}
	return node
}

func valueOf(node inherit.NodeState, e inherit.Entry) (value string, has bool) {
	if e.What == "label" {
		value, has = node.Labels[e.Name]
		return value, has
	}
	at := slices.IndexFunc(node.Taints, func(t corev1.Taint) bool { return taint.IDOf(t).String() == e.Name })
	if at < 0 {
		return "", false
	}
	return node.Taints[at].Value, true
}

// configName names an object of the files.
func configName(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// configOf returns the bootstrap configuration of a pool: of the pool itself or, if the topology makes the pool, of the section of its
// ClusterClass. It is nil if no file has it.
func (l *linter) configOf(p machines) *manifest.Object {
	var own clusterv1.ContractVersionedObjectReference
	switch o := p.object.(type) {
	case *inherit.ControlPlane:
		own.Kind, own.Name = o.Kind, o.Name // it has its configuration itself
	case *clusterv1.MachineDeployment:
		own = o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.MachinePool:
		own = o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.MachineSet:
		own = o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.Machine:
		own = o.Spec.Bootstrap.ConfigRef
	}
	if config := l.configs[configName(own.Kind, p.object.GetNamespace(), own.Name)]; config != nil || p.class == nil {
		return config
	}
	ref := p.inClass()
	return l.configs[configName(ref.Kind, p.class.Namespace, ref.Name)]
}

// inClass returns the template of the bootstrap configuration, or of the control plane, in the pool's section of the ClusterClass.
func (p machines) inClass() (ref clusterv1.ClusterClassTemplateReference) {
	topology, labels := p.cluster.Spec.Topology.Workers, p.object.GetLabels()
	switch p.object.(type) {
	case *inherit.ControlPlane:
		ref = p.class.Spec.ControlPlane.TemplateRef
	case *clusterv1.MachineDeployment:
		for _, section := range topology.MachineDeployments {
			for _, c := range p.class.Spec.Workers.MachineDeployments {
				if section.Name == labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] && section.Class == c.Class {
					ref = c.Bootstrap.TemplateRef
				}
			}
		}
	case *clusterv1.MachinePool:
		for _, section := range topology.MachinePools {
			for _, c := range p.class.Spec.Workers.MachinePools {
				if section.Name == labels[clusterv1.ClusterTopologyMachinePoolNameLabel] && section.Class == c.Class {
					ref = c.Bootstrap.TemplateRef
				}
			}
		}
	}
	return ref
}
