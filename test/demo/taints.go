// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// untaint returns the kubectl command that removes taints from a Node.
func untaint(node string, taints []string) []string {
	args := []string{"taint", "node", node}
	for _, t := range taints {
		args = append(args, keyOf(t)+"-")
	}
	return args
}

// always is the step in which a user removes Always taints.
func (d *demo) always(ctx context.Context) error {
	const name = "worker-1"
	d.say("A user removes both Always taints from Node %s. kubectl reports success, but the API server answers with "+
		"warnings:", name)
	stdout, stderr, err := d.kubectl(ctx, untaint(name, d.declared.always)...)
	d.output(stdout)
	d.output(stderr)
	if err != nil {
		return err
	}
	for _, t := range d.declared.always {
		d.check(fmt.Sprintf("A warning says that %s was kept, where it comes from and where to change it", keyOf(t)),
			notWarned(stderr, t, "Machine default/"+name, "edit MachineDeployment default/workers")...)
	}
	versions, err := d.versions(ctx, name)
	if err != nil {
		return err
	}
	var without []string
	for i, v := range versions {
		for _, problem := range ofNode(v).missing(content{taints: d.declared.always}) {
			without = append(without, fmt.Sprintf("version %d (resourceVersion %s): %s", i+1, v.ResourceVersion, problem))
		}
	}
	d.check("Every stored version of the Node has both taints: Heirloom restored them in the same write", without...)
	return nil
}

// notWarned returns a problem for each wanted text that is missing in the only warning about this taint.
func notWarned(stderr, t string, wanted ...string) []string {
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "Warning:") || !strings.Contains(line, t) {
			continue
		}
		var problems []string
		for _, text := range wanted {
			if !strings.Contains(line, text) {
				problems = append(problems, fmt.Sprintf("the warning does not have %q", text))
			}
		}
		return problems
	}
	return []string{"there is no warning about " + t}
}

// initialize is the step in which a user removes OnInitialization taints.
func (d *demo) initialize(ctx context.Context) error {
	const name, shift = "worker-1", "node.cluster.x-k8s.io/shift=night"
	removed := content{taints: d.declared.initialize}
	before, err := d.versions(ctx, name)
	if err != nil {
		return err
	}
	d.say("The workload of Node %s has warmed up, so a user removes its OnInitialization taints:", name)
	if err := d.do(ctx, untaint(name, d.declared.initialize)...); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: in("", name)}
	if err := d.get(ctx, node); err != nil {
		return err
	}
	d.check("The taints are gone", ofNode(node).unwanted(removed)...)
	d.say("A change to its Machine makes Heirloom sync the Node again:")
	if err := d.do(ctx, "label", "machine", name, shift); err != nil {
		return err
	}
	d.check("The Machine's new label arrives at the Node",
		d.await(ctx, node, func() []string { return ofNode(node).missing(content{labels: []string{shift}}) })...)
	after, err := d.versions(ctx, name)
	if err != nil {
		return err
	}
	d.check("The OnInitialization taints have not come back in any version", back(after[len(before):], removed)...)
	d.check("The Always taints are there", ofNode(node).missing(content{taints: d.declared.always})...)
	return nil
}

// back returns a problem for each entry that was absent from a Node in one version and present in a later version.
func back(versions []*corev1.Node, removed content) []string {
	gone := slices.IndexFunc(versions, func(v *corev1.Node) bool { return len(ofNode(v).unwanted(removed)) == 0 })
	if gone < 0 {
		return []string{"they were never removed"}
	}
	var problems []string
	for _, v := range versions[gone:] {
		problems = append(problems, prefixed("resourceVersion "+v.ResourceVersion+": ", ofNode(v).unwanted(removed))...)
	}
	return problems
}

// reserved is the step in which a user declares a reserved taint.
func (d *demo) reserved(ctx context.Context) error {
	d.say("MachineDeployment reserved declares the taint node.kubernetes.io/unreachable in spec.taints and in an " +
		"annotation.")
	if err := d.write("reserved.yaml"); err != nil {
		return err
	}
	_, stderr, err := d.kubectl(ctx, "create", "-f", "reserved.yaml")
	d.output(stderr)
	d.check("The API server rejects it", unlessFailed(err)...)
	for _, path := range []string{
		"spec.template.spec.taints[0].key",
		"spec.template.metadata.annotations[taints.heirloom.dev/always]",
	} {
		var problems []string
		if !strings.Contains(stderr, path) {
			problems = []string{"the message does not name the field"}
		}
		d.check("It says which field is wrong: "+path, problems...)
	}
	md := &clusterv1.MachineDeployment{ObjectMeta: in("default", "reserved")}
	err = d.stage.Client.Get(ctx, client.ObjectKeyFromObject(md), md)
	switch {
	case err == nil:
		d.check("It was not stored", "it was")
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("looking for MachineDeployment reserved: %w", err)
	default:
		d.check("It was not stored")
	}
	return nil
}
