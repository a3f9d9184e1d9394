// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
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

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/release"
)

// timeout is how long the loop may take to give up what it owns.
const timeout = 2 * time.Minute

// Object is an object that is released while Heirloom runs: it gets the label that opts it out, with the value that has the loop give
// up what Heirloom owns there; with a Machine on its Node, with a Cluster in everything that belongs to it.
type Object struct {
	schema.GroupVersionKind
	types.NamespacedName
	// Client reads from the API server.
	Client client.Client
	// Kinds are those that inherit, of which objects may belong to a Cluster.
	Kinds []schema.GroupVersionKind
	// Lease is the leader's; empty without leader election.
	Lease       types.NamespacedName
	Out, ErrOut io.Writer
}

// String names it as kubectl does.
func (o *Object) String() string { return strings.ToLower(o.GroupKind().String()) + "/" + o.Name }

// Describe says what is about to happen.
func (o *Object) Describe() string {
	what := "there. Objects below it then inherit only what is left in it"
	switch {
	case o.isCluster():
		what = "in all objects of the Cluster and on its Nodes"
	case o.Kind == "Machine":
		what = "there and on its Node"
	}
	return fmt.Sprintf("This labels %s in namespace %s with %s=%s: Heirloom gives up what it owns %s. "+
		"It inherits nothing until you remove the label.\n%s\n%s", o, o.Namespace, inherit.IgnoreLabel, inherit.IgnoreAndRelease, what, removed, shows)
}

func (o *Object) isCluster() bool {
	return o.GroupKind() == clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
}

// Validate refuses kinds that the label means nothing to.
func (o *Object) Validate() error {
	inheriting := func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == o.GroupKind() }
	ofClusterAPI := o.Group == clusterv1.GroupVersion.Group || o.Group == clusterv1.GroupVersionControlPlane.Group
	switch {
	case o.Group == "" && o.Kind == "Node":
		return errors.New("a Node is released with its Machine, or with its Cluster: name that")
	case !o.isCluster() && (!ofClusterAPI || !slices.ContainsFunc(o.Kinds, inheriting)):
		return fmt.Errorf("a %s cannot be released alone; name a Cluster, a control plane, a MachineDeployment, MachinePool, MachineSet or Machine", o.Kind)
	}
	return nil
}

// Preview prints what would happen to objects, and writes nothing.
func (o *Object) Preview(ctx context.Context) error {
	owned, err := o.owned(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(o.Out, "%s labeled in namespace %s (dry run)\n", o, o.Namespace)
	for _, object := range owned {
		gvk := object.GroupVersionKind()
		_, removed, err := release.Object(ctx, o.Client, o.Client, gvk, client.ObjectKeyFromObject(&object), release.Mode{DryRun: true})
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", gvk.Kind, object.Name, err)
		}
		line := fmt.Sprintf("%s/%s released in namespace %s (dry run)", strings.ToLower(gvk.GroupKind().String()), object.Name, object.Namespace)
		_, _ = fmt.Fprintln(o.Out, strings.Join(append([]string{line}, removed...), "\n  "))
	}
	return nil
}

// Release labels the object, and waits until the running server has given up what it owns.
func (o *Object) Release(ctx context.Context) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(o.GroupVersionKind)
	object.Namespace, object.Name = o.Namespace, o.Name
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, inherit.IgnoreLabel, inherit.IgnoreAndRelease)
	if err := o.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-heirloom")); err != nil {
		return fmt.Errorf("labelling %s in namespace %s: %w", o, o.Namespace, err)
	}
	_, _ = fmt.Fprintf(o.Out, "%s labeled in namespace %s\n", o, o.Namespace)
	if err := o.leads(ctx); err != nil {
		return err
	}
	var owned []metav1.PartialObjectMetadata
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (done bool, err error) {
		owned, err = o.owned(ctx)
		return len(owned) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("after %s, Heirloom still owns something in %d objects: its log says why, or it has not come that far; run this again to look",
			timeout, len(owned))
	}
	if err == nil {
		_, _ = fmt.Fprintf(o.Out, "%s released in namespace %s\n", o, o.Namespace)
	}
	return err
}

// leads makes sure that a replica of Heirloom runs the loop.
func (o *Object) leads(ctx context.Context) error {
	if o.Lease.Name == "" {
		return nil
	}
	lease := &coordinationv1.Lease{}
	if err := o.Client.Get(ctx, o.Lease, lease); client.IgnoreNotFound(err) != nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Note: whether Heirloom runs is not known: %v\n", err)
		return nil
	}
	if release.Leads(lease, time.Now()) {
		return nil
	}
	return fmt.Errorf("no replica of Heirloom seems to lead (Lease %s): what Heirloom owns there goes as soon as one does", o.Lease)
}

// owned returns the objects in which Heirloom owns something: the object itself, or those of a Cluster.
func (o *Object) owned(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	var found []metav1.PartialObjectMetadata
	add := func(gvk schema.GroupVersionKind, object metav1.PartialObjectMetadata) {
		if object.SetGroupVersionKind(gvk); managedfields.Recorded(object.ManagedFields) {
			found = append(found, object)
		}
	}
	if !o.isCluster() {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(o.GroupVersionKind)
		err := o.Client.Get(ctx, o.NamespacedName, object)
		add(o.GroupVersionKind, *object)
		return found, err
	}
	for _, gvk := range o.Kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := o.Client.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: o.Name}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
		}
		for _, object := range list.Items {
			add(gvk, object)
		}
	}
	return found, nil
}
