// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// free returns the entries that every kubelet may set on its own Node.
func (d declared) free() content {
	free := d.under("node.cluster.x-k8s.io")
	free.taints = nil
	return free
}

// restricted returns the labels that NodeRestriction forbids every kubelet to set.
func (d declared) restricted() content {
	return content{labels: d.under("node-role.kubernetes.io", "node-restriction.kubernetes.io").labels}
}

func (d declared) nodeTaints() content {
	return content{taints: slices.Concat(d.always, d.initialize)}
}

// uninitialized returns the taint that keeps Pods off a Node until the Node has all labels.
func uninitialized() content {
	return content{taints: []string{taint.Format(clusterv1.NodeUninitializedTaint)}}
}

// registration is the step in which two Nodes register.
func (d *demo) registration(ctx context.Context) error {
	d.say("Two kubelets register their Nodes: real kubelet code over a fake container runtime. Their users are " +
		"system:node:worker-1 and system:node:worker-2. Admission plugin NodeRestriction is on.")
	names := []string{"worker-1", "worker-2"}
	for _, name := range names {
		if err := d.register(ctx, name); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := d.first(ctx, name, i == 0); err != nil {
			return err
		}
	}
	return d.restricted(ctx, names)
}

// restricted checks the labels that a kubelet may not set.
func (d *demo) restricted(ctx context.Context, names []string) error {
	d.say("Kubelets must not set labels under node-role.kubernetes.io and node-restriction.kubernetes.io:")
	_, stderr, err := d.kubectl(ctx, "--kubeconfig", "worker-1.kubeconfig",
		"label", "node", "worker-1", "node-role.kubernetes.io/infra=")
	d.output(stderr)
	d.check("The API server rejects the kubelet's write", unlessFailed(err)...)
	d.say("So Heirloom's loop, which has this right, adds them.")
	for _, name := range names {
		if err := d.complete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func unlessFailed(err error) []string {
	if err == nil {
		return []string{"the command succeeded"}
	}
	return nil
}

// register starts a kubelet and waits for its Node.
func (d *demo) register(ctx context.Context, name string) error {
	d.command("kubemark", "--morph=kubelet", "--name="+name, "--kubeconfig="+name+".kubeconfig")
	kubelet, err := d.stage.StartKubelet(ctx, controlplane.KubeletOptions{Name: name, Dir: d.dir})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	_, err = kubelet.WaitRegistered(ctx)
	return err
}

// first checks the first version of a Node, which its kubelet created.
func (d *demo) first(ctx context.Context, name string, show bool) error {
	versions, err := d.versions(ctx, name)
	if err != nil {
		return err
	}
	first := versions[0]
	d.say("The first version of Node %s that the API server stored (resourceVersion %s):", name, first.ResourceVersion)
	has := ofNode(first)
	if show {
		has.under("node.cluster.x-k8s.io", "cluster.x-k8s.io", "heirloom.dev").show()
	}
	d.check("It has every Always and every OnInitialization taint", has.missing(d.declared.nodeTaints())...)
	d.check("It has the labels and annotations under node.cluster.x-k8s.io", has.missing(d.declared.free())...)
	d.check("It has no label that kubelets must not set", has.unwanted(d.declared.restricted())...)
	d.check("A taint keeps Pods away until it has these labels", has.missing(uninitialized())...)
	return nil
}

// complete checks a Node after its first privileged write.
func (d *demo) complete(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: in("", name)}
	left := d.await(ctx, node, func() []string {
		return append(ofNode(node).missing(d.declared.restricted()), ofNode(node).unwanted(uninitialized())...)
	})
	d.check(fmt.Sprintf("Node %s has all labels now, and node.cluster.x-k8s.io/uninitialized is gone", name), left...)
	d.check(fmt.Sprintf("Node %s still has every Always and every OnInitialization taint", name),
		ofNode(node).missing(d.declared.nodeTaints())...)
	versions, err := d.versions(ctx, name)
	if err != nil || len(left) > 0 {
		return err
	}
	wanted := d.declared.restricted()
	i := slices.IndexFunc(versions, func(v *corev1.Node) bool { return len(ofNode(v).unwanted(wanted)) > 0 })
	version := versions[i]
	d.check(fmt.Sprintf("All of them arrived in version %d (resourceVersion %s), written by field manager heirloom",
		i+1, version.ResourceVersion), append(ofNode(version).missing(wanted), notWritten(version, wanted.labels)...)...)
	return nil
}

// notWritten returns a problem for each label that heirloom has not written by an update.
func notWritten(node *corev1.Node, labels []string) []string {
	owned := ownedFields(node, "heirloom", metav1.ManagedFieldsOperationUpdate)
	var problems []string
	for _, label := range labels {
		if !owned.Has(fieldpath.MakePathOrDie("metadata", "labels", keyOf(label))) {
			problems = append(problems, "heirloom has not written label "+label)
		}
	}
	return problems
}
