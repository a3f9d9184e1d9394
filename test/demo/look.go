// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	// patience is the time limit of each observation, also on a busy machine.
	patience = 30 * time.Second
	polling  = 50 * time.Millisecond
)

// in names an object.
func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (d *demo) kubeconfig() string {
	return filepath.Join(d.dir, "admin.kubeconfig")
}

// kubectl shows a kubectl command as a user types it, and runs it. Files are relative to the demo's directory.
func (d *demo) kubectl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	d.command(append([]string{"kubectl"}, args...)...)
	located := []string{"--cache-dir", filepath.Join(d.dir, "kubectl-cache")}
	for _, arg := range args {
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".kubeconfig") {
			arg = filepath.Join(d.dir, arg)
		}
		located = append(located, arg)
	}
	return controlplane.Kubectl(ctx, d.kubeconfig(), located...)
}

// do runs kubectl and shows its output.
func (d *demo) do(ctx context.Context, args ...string) error {
	stdout, stderr, err := d.kubectl(ctx, args...)
	d.output(stdout)
	d.output(stderr)
	return err
}

// get reads an object.
func (d *demo) get(ctx context.Context, object client.Object) error {
	if err := d.stage.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return fmt.Errorf("getting %s: %w", object.GetName(), err)
	}
	return nil
}

// await reads an object until it has no problems, or the time is over. It returns the problems that are left.
func (d *demo) await(ctx context.Context, object client.Object, problems func() []string) []string {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, polling, patience, true, func(ctx context.Context) (bool, error) {
		err := d.get(ctx, object)
		switch {
		case err == nil:
			left = problems()
		case ctx.Err() == nil:
			left = failure(err)
		}
		return err == nil && len(left) == 0, nil
	})
	if len(left) == 0 {
		left = failure(err)
	}
	return left
}

// versions returns all versions of a Node that have been stored up to now, oldest first.
func (d *demo) versions(ctx context.Context, name string) ([]*corev1.Node, error) {
	now := &corev1.Node{ObjectMeta: in("", name)}
	if err := d.get(ctx, now); err != nil {
		return nil, err
	}
	var recorded []controlplane.Version
	err := wait.PollUntilContextTimeout(ctx, polling, patience, true, func(context.Context) (bool, error) {
		recorded = d.nodes.Versions("", name)
		return slices.ContainsFunc(recorded, func(v controlplane.Version) bool {
			return v.Object.GetResourceVersion() == now.ResourceVersion
		}), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the recording of Node %s: %w", name, err)
	}
	nodes := make([]*corev1.Node, 0, len(recorded))
	for _, v := range recorded {
		node := &corev1.Node{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v.Object.Object, node); err != nil {
			return nil, fmt.Errorf("reading a version of Node %s: %w", name, err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}
