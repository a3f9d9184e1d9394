// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// declared has the declarations of the MachineDeployment for everything below it.
type declared struct {
	content
	// always and initialize are its taints, from spec.taints and from annotations, in kubectl's syntax.
	always, initialize []string
	// own has the entries that MachineSets themselves inherit.
	own content
}

func declaredBy(md *clusterv1.MachineDeployment) declared {
	template := md.Spec.Template
	d := declared{
		content:    ofTemplate(template),
		own:        content{annotations: []string{"runbook=" + md.Annotations["runbook"]}},
		always:     strings.Split(template.Annotations[taint.AlwaysAnnotation], ","),
		initialize: strings.Split(template.Annotations[taint.InitializeAnnotation], ","),
	}
	for _, t := range template.Spec.Taints {
		if formatted := taint.Format(taint.ForNode(t)); t.Propagation == clusterv1.MachineTaintPropagationAlways {
			d.always = append(d.always, formatted)
		} else {
			d.initialize = append(d.initialize, formatted)
		}
	}
	return d
}

// children is the step in which MachineSet and Machines inherit.
func (d *demo) children(ctx context.Context) error {
	md, err := d.declare(ctx)
	if err != nil {
		return err
	}
	d.say("The demo creates its MachineSet as the controller would without Heirloom, with an owner reference and the " +
		"labels that it selects by:")
	sets, err := create[clusterv1.MachineSet](ctx, d, "machineset.yaml", md.UID)
	if err != nil {
		return err
	}
	ms := sets[0].got
	added := ofTemplate(ms.Spec.Template).without(ofTemplate(sets[0].sent.Spec.Template))
	d.say("The API server's answer has these additional entries in spec.template:")
	added.show()
	d.check("MachineSet: the answer to CREATE has every label, annotation and taint of the template",
		ofTemplate(ms.Spec.Template).missing(d.declared.content)...)
	own := content{labels: added.labels, annotations: d.declared.own.annotations}
	d.check("MachineSet: its own metadata has the template's labels, and the MachineDeployment's own annotation",
		contentOf(ms.Labels, ms.Annotations, nil).missing(own)...)
	d.check("MachineSet: in metadata.managedFields, heirloom owns all of them (operation Apply)",
		append(notApplied(&ms, added, "spec", "template"), notApplied(&ms, own)...)...)
	return d.machines(ctx, ms.UID)
}

// declare creates the MachineDeployment and shows its declarations.
func (d *demo) declare(ctx context.Context) (*clusterv1.MachineDeployment, error) {
	for _, name := range []string{"cluster.yaml", "machinedeployment.yaml"} {
		if err := d.write(name); err != nil {
			return nil, err
		}
	}
	if err := d.do(ctx, "apply", "-f", "cluster.yaml", "-f", "machinedeployment.yaml"); err != nil {
		return nil, err
	}
	md := &clusterv1.MachineDeployment{ObjectMeta: in("default", "workers")}
	if err := d.get(ctx, md); err != nil {
		return nil, err
	}
	d.declared = declaredBy(md)
	d.say("MachineDeployment workers declares the following in spec.template. Two taints are in spec.taints, two in " +
		"annotations; in both places, one taint stays on Nodes (Always), and Nodes get the other only once " +
		"(OnInitialization). Its own annotation, runbook, is for its MachineSets.")
	d.declared.show()
	return md, nil
}

// machines creates the Machines.
func (d *demo) machines(ctx context.Context, owner types.UID) error {
	d.say("Then it creates two Machines without labels, annotations and taints:")
	machines, err := create[clusterv1.Machine](ctx, d, "machines.yaml", owner)
	if err != nil {
		return err
	}
	added := func(i int) content { return ofMachine(&machines[i].got).without(ofMachine(&machines[i].sent)) }
	d.say("The API server's answer for worker-1 has these additional entries:")
	added(0).show()
	for i := range machines {
		m := &machines[i].got
		d.check(fmt.Sprintf("Machine %s: the answer to CREATE also has all of them", m.Name),
			ofMachine(m).missing(d.declared.content)...)
		d.check(fmt.Sprintf("Machine %s: in metadata.managedFields, heirloom owns all of them (operation Apply)", m.Name),
			notApplied(m, added(i))...)
	}
	return nil
}

// created is an object as it was sent, and as it is in the answer to its create.
type created[T any] struct{ sent, got T }

// create creates the objects of a manifest, which all have the same owner.
func create[T any](ctx context.Context, d *demo, name string, owner types.UID) ([]created[T], error) {
	if err := d.write(name, ownedBy(owner)); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	sent, err := decode[T](raw)
	if err != nil {
		return nil, err
	}
	stdout, stderr, err := d.kubectl(ctx, "create", "-f", name, "-o", "json", "--show-managed-fields")
	d.output(stderr)
	if err != nil {
		return nil, err
	}
	got, err := decode[T]([]byte(stdout))
	if err != nil {
		return nil, err
	}
	if len(got) != len(sent) {
		return nil, fmt.Errorf("%d of %d objects were created", len(got), len(sent))
	}
	objects := make([]created[T], len(sent))
	for i := range sent {
		objects[i] = created[T]{sent: sent[i], got: got[i]}
	}
	return objects, nil
}
