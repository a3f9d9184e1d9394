// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// outage is the step in which Heirloom is down.
func (d *demo) outage(ctx context.Context) error {
	ms := &clusterv1.MachineSet{ObjectMeta: in("default", "workers-x7k2p")}
	if err := d.get(ctx, ms); err != nil {
		return err
	}
	fmt.Println()
	if err := progress("Stopping heirloom", d.stage.StopHeirloom); err != nil {
		return err
	}
	d.say("Its webhooks are still registered, with failurePolicy Ignore. A user creates a Machine, labels another " +
		"Machine, and removes a taint from a Node:")
	if err := d.write("late-machine.yaml", ownedBy(ms.UID)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"create", "-f", "late-machine.yaml"},
		{"label", "machine", "worker-2", "ticket=4712"},
		{"taint", "node", "worker-2", "gpu-"},
	} {
		d.check("Succeeds without Heirloom", failure(d.do(ctx, args...))...)
	}
	d.say("A new kubelet also registers:")
	d.check("Node worker-3 registers without Heirloom", failure(d.register(ctx, "worker-3"))...)
	node := &corev1.Node{ObjectMeta: in("", "worker-3")}
	if err := d.get(ctx, node); err != nil {
		return err
	}
	d.check("It has no taint of its Machine", ofNode(node).unwanted(d.declared.nodeTaints())...)
	fmt.Println()
	if err := d.startHeirloom(ctx); err != nil {
		return err
	}
	d.repaired(ctx)
	return nil
}

// repaired checks the repairs of the loop.
func (d *demo) repaired(ctx context.Context) {
	m := &clusterv1.Machine{ObjectMeta: in("default", "worker-3")}
	d.check("Machine worker-3 has everything that is declared", d.await(ctx, m, func() []string {
		return ofMachine(m).missing(d.declared.content)
	})...)
	late := &corev1.Node{ObjectMeta: in("", "worker-3")}
	for _, inherited := range []struct {
		what string
		content
	}{
		{"labels and annotations", d.declared.free()},
		{"labels that only a privileged user may set", d.declared.restricted()},
		{"Always taints", content{taints: d.declared.always}},
		{"OnInitialization taints", content{taints: d.declared.initialize}},
	} {
		d.check("Node worker-3 has its "+inherited.what, d.await(ctx, late, func() []string {
			return ofNode(late).missing(inherited.content)
		})...)
	}
	changed := &corev1.Node{ObjectMeta: in("", "worker-2")}
	d.check("Node worker-2 has its Always taints again", d.await(ctx, changed, func() []string {
		return ofNode(changed).missing(content{taints: d.declared.always})
	})...)
	initialized := &corev1.Node{ObjectMeta: in("", "worker-1")}
	d.check("Node worker-1 did not get its OnInitialization taints back", d.await(ctx, initialized, func() []string {
		return ofNode(initialized).unwanted(content{taints: d.declared.initialize})
	})...)
}

// failure returns the problem of an error, or no problem without an error.
func failure(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}
