// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// removal is the step in which the MachineDeployment stops declaring a label.
func (d *demo) removal(ctx context.Context) error {
	label := content{labels: []string{"node.cluster.x-k8s.io/pool=gpu"}}
	d.say("First a user sets a label on a Machine and another one on its Node:")
	if err := d.do(ctx, "label", "machine", "worker-1", "ticket=4711"); err != nil {
		return err
	}
	if err := d.do(ctx, "label", "node", "worker-1", "rack=r7"); err != nil {
		return err
	}
	d.say("Then one label is deleted from the template of the MachineDeployment:")
	d.command("sed", "-i", "'/pool: gpu/d'", "machinedeployment.yaml")
	if err := d.write("machinedeployment.yaml", withoutLine("pool: gpu")); err != nil {
		return err
	}
	if err := d.do(ctx, "apply", "-f", "machinedeployment.yaml"); err != nil {
		return err
	}
	ms := &clusterv1.MachineSet{ObjectMeta: in("default", "workers-x7k2p")}
	d.check("The label is gone from the MachineSet, itself and in its template", d.await(ctx, ms, func() []string {
		return append(contentOf(ms.Labels, nil, nil).unwanted(label), ofTemplate(ms.Spec.Template).unwanted(label)...)
	})...)
	for _, name := range []string{"worker-1", "worker-2"} {
		m := &clusterv1.Machine{ObjectMeta: in("default", name)}
		d.check("The label is gone from Machine "+name, d.await(ctx, m, func() []string { return ofMachine(m).unwanted(label) })...)
		node := &corev1.Node{ObjectMeta: in("", name)}
		d.check("The label is gone from Node "+name, d.await(ctx, node, func() []string { return ofNode(node).unwanted(label) })...)
	}
	d.declared.content = d.declared.without(label)
	return d.others(ctx)
}

// others checks that the removal has changed nothing else.
func (d *demo) others(ctx context.Context) error {
	m, node := &clusterv1.Machine{ObjectMeta: in("default", "worker-1")}, &corev1.Node{ObjectMeta: in("", "worker-1")}
	if err := errors.Join(d.get(ctx, m), d.get(ctx, node)); err != nil {
		return err
	}
	ticket, rack := content{labels: []string{"ticket=4711"}}, content{labels: []string{"rack=r7"}}
	d.check("The user's own entry stays: ticket on the Machine", ofMachine(m).missing(ticket)...)
	d.check("The user's own entry stays: rack on the Node", ofNode(node).missing(rack)...)
	d.check("Everything else that is declared stays on the Machine", ofMachine(m).missing(d.declared.content)...)
	return nil
}
