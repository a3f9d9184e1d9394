// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// timeout is how long the loop may take to clean up the object.
const timeout = 2 * time.Minute

// Object is an object that is cleaned up while Heirloom runs. The label that opts it out makes the loop clean up the object: a Machine with
// its Node, a Cluster with all its objects.
type Object struct {
	schema.GroupVersionKind
	types.NamespacedName
	// Client reads from the API server.
	Client client.Client
	// Kinds are the kinds that inherit. Their objects may belong to a Cluster.
	Kinds []schema.GroupVersionKind
	// World is the fleet, in which a preview finds the Nodes, and Workload connects it to workload clusters.
	World    compare.World
	Workload func(context.Context, types.NamespacedName) (client.Client, error)
	// Lease is the Lease of the leader; empty without leader election.
	Lease types.NamespacedName
	Out   io.Writer
}

// String names the object as kubectl does.
func (o *Object) String() string { return did(o.GroupKind(), o.NamespacedName, "") }

func did(kind schema.GroupKind, key types.NamespacedName, verb string) string {
	return strings.ToLower(kind.String()) + "/" + key.Name + verb + " in namespace " + key.Namespace
}

// Describe announces the cleanup.
func (o *Object) Describe() string {
	what := map[string]string{
		"Cluster": "in all objects of the Cluster and on its Nodes", "Machine": "there and on its Node", "MachinePool": "there and on its Nodes",
	}[o.Kind]
	if what == "" {
		what = "there. Objects below it then inherit only its remaining entries"
	}
	return fmt.Sprintf("This labels %s with %s=%s: Heirloom gives up everything that it owns %s. It inherits nothing until you remove the label.\n%s",
		o, inherit.IgnoreLabel, inherit.IgnoreAndCleanUp, what, removed)
}

func (o *Object) isCluster() bool {
	return o.GroupKind() == clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
}

// Validate refuses kinds for which the label has no effect.
func (o *Object) Validate() error {
	inherits := slices.ContainsFunc(o.Kinds, func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == o.GroupKind() })
	if o.isCluster() || inherits && slices.Contains([]string{clusterv1.GroupVersion.Group, clusterv1.GroupVersionControlPlane.Group}, o.Group) {
		return nil
	}
	return fmt.Errorf("%s cannot be cleaned up alone; name a Cluster, a control plane, a MachineDeployment, MachinePool, MachineSet or Machine", o.Kind)
}

// Preview prints the effect of a cleanup, and writes nothing.
func (o *Object) Preview(ctx context.Context, mode cleanup.Mode) error {
	owned, err := o.owned(ctx)
	if err == nil && mode.ServerSide {
		err = o.label(ctx)
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.Out, did(o.GroupKind(), o.NamespacedName, " labeled"), "(dry run)")
	for _, object := range owned {
		gvk, key := object.GroupVersionKind(), client.ObjectKeyFromObject(&object)
		_, removed, err := cleanup.Object(ctx, o.Client, o.Client, gvk, key, mode)
		if err != nil {
			return fmt.Errorf("cleaning up %s %s: %w", gvk.Kind, key.Name, err)
		}
		o.would(did(gvk.GroupKind(), key, " cleaned up"), removed)
	}
	return o.previewNodes(ctx, mode)
}

// would prints a cleanup that a preview does not do, with the removed fields.
func (o *Object) would(done string, removed []string) {
	_, _ = fmt.Fprintln(o.Out, strings.Join(append([]string{done + " (dry run)"}, removed...), "\n  "))
}

// label asks the running server to clean up the object.
func (o *Object) label(ctx context.Context) error {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	object.SetGroupVersionKind(o.GroupVersionKind)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, inherit.IgnoreLabel, inherit.IgnoreAndCleanUp)
	if err := o.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-heirloom")); err != nil {
		return fmt.Errorf("labeling %s: %w", o, err)
	}
	return nil
}

// CleanUp labels the object, and waits until the running server has cleaned it up.
func (o *Object) CleanUp(ctx context.Context) error {
	if err := o.label(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.Out, did(o.GroupKind(), o.NamespacedName, " labeled"))
	lease := &coordinationv1.Lease{} // without the right to read it, CleanUp just waits
	if err := o.Client.Get(ctx, o.Lease, lease); o.Lease.Name != "" && client.IgnoreNotFound(err) == nil && !cleanup.Leads(lease, time.Now()) {
		return fmt.Errorf("no replica of Heirloom seems to lead (Lease %s): the cleanup happens as soon as a replica leads", o.Lease)
	}
	var owned []metav1.PartialObjectMetadata
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (done bool, err error) {
		owned, err = o.owned(ctx)
		return len(owned) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("after %s, Heirloom still owns entries in %s: see its log, or run this again later",
			timeout, cli.Count(len(owned), "object"))
	}
	if err == nil {
		_, _ = fmt.Fprintln(o.Out, did(o.GroupKind(), o.NamespacedName, " cleaned up"))
	}
	return err
}

// owned returns the objects in which Heirloom owns fields: the object itself, or the objects of a Cluster.
func (o *Object) owned(ctx context.Context) (found []metav1.PartialObjectMetadata, err error) {
	if !o.isCluster() {
		object := metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(o.GroupVersionKind)
		if err = o.Client.Get(ctx, o.NamespacedName, &object); managedfields.Recorded(object.ManagedFields) {
			found = append(found, object)
		}
		return found, err
	}
	for _, gvk := range o.Kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := o.Client.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: o.Name}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
		}
		for _, object := range list.Items {
			if object.SetGroupVersionKind(gvk); managedfields.Recorded(object.ManagedFields) {
				found = append(found, object)
			}
		}
	}
	return found, nil
}
