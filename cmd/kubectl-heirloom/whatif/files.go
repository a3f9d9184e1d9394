// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Apply says how the files would be applied, as the flags of kubectl apply do.
type Apply struct {
	ServerSide, ForceConflicts bool
	FieldManager               string
}

// DefaultManager returns the field manager that kubectl apply has without --field-manager.
func (a Apply) DefaultManager() string {
	if a.ServerSide {
		return "kubectl"
	}
	return "kubectl-client-side-apply"
}

// applied asks the API server what a file's object would become. Webhooks, defaults and validation are real.
func (a Apply) applied(ctx context.Context, live client.Client, file *unstructured.Unstructured) (*Object, error) {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(file.GroupVersionKind())
	err := live.Get(ctx, client.ObjectKeyFromObject(file), stored)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return nil, fmt.Errorf("getting %s: %w", nameOf(file), err)
	}
	merged := file.DeepCopy()
	switch {
	case a.ServerSide:
		err = a.serverSide(ctx, live, merged)
	case isNew:
		err = live.Create(ctx, merged, client.DryRunAll, client.FieldOwner(a.FieldManager))
	default:
		merged, err = a.clientSide(ctx, live, file, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the API server what %s would become: %w", nameOf(file), err)
	}
	merged.SetGroupVersionKind(file.GroupVersionKind())
	o := newObject(merged, types.NamespacedName{})
	o.Applied, o.New, o.Live = true, isNew, stored
	if isNew {
		o.Live = nil
	}
	o.Changes, err = changedByFiles(o)
	return o, err
}

func (a Apply) serverSide(ctx context.Context, live client.Client, file *unstructured.Unstructured) error {
	data, err := file.MarshalJSON()
	if err != nil {
		return fmt.Errorf("writing the patch: %w", err)
	}
	options := []client.PatchOption{client.DryRunAll, client.FieldOwner(a.FieldManager)}
	if a.ForceConflicts {
		options = append(options, client.ForceOwnership)
	}
	return live.Patch(ctx, file, client.RawPatch(types.ApplyPatchType, data), options...)
}

// clientSide is kubectl's patch for custom resources: what the file changes, and what the last applied file had and this one lacks.
func (a Apply) clientSide(ctx context.Context, live client.Client, file, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before := []byte(stored.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	modified, err := json.Marshal(file.Object)
	if err != nil {
		return nil, fmt.Errorf("reading the file: %w", err)
	}
	current, err := json.Marshal(stored.Object)
	if err != nil {
		return nil, fmt.Errorf("reading the stored object: %w", err)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, modified, current,
		mergepatch.RequireKeyUnchanged("apiVersion"), mergepatch.RequireKeyUnchanged("kind"), mergepatch.RequireMetadataKeyUnchanged("name"))
	if err != nil {
		return nil, fmt.Errorf("making the patch: %w", err)
	}
	merged := stored.DeepCopy()
	if string(patch) == "{}" {
		return merged, nil
	}
	return merged, live.Patch(ctx, merged, client.RawPatch(types.MergePatchType, patch), client.DryRunAll, client.FieldOwner(a.FieldManager))
}

// rank orders files from the top of the owner chain to its end. ok is false for kinds that are not in it.
func rank(gvk schema.GroupVersionKind, providerGroups []string) (place int, ok bool) {
	switch {
	case inherit.IsTemplate(gvk.Kind):
		return 0, false
	case gvk.Group == inherit.ControlPlaneGroup:
		return 2, true
	case gvk.Group != clusterv1.GroupVersion.Group:
		return 7, slices.Contains(providerGroups, gvk.Group)
	}
	chain := []string{"ClusterClass", "Cluster", "", "MachineDeployment", "MachinePool", "MachineSet", "Machine"}
	place = slices.Index(chain, gvk.Kind)
	return place, place >= 0
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}
