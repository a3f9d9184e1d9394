// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// patch gives up what the object no longer inherits, or adopts what it does inherit from its creator. An apply cannot take
// fields over from an Update. An apply that gives up fields also removes parents that have no owner: of an object without
// managed fields, the whole spec. Additions are left to the apply that follows the patch's event.
//
// The object is read first, because the cache has only a part of it.
func (d Dependencies) patch(ctx context.Context, object client.Object, gvk schema.GroupVersionKind, p planned) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(gvk)
	if err := d.Live.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return gone(err, gvk.Kind)
	}
	if live.GetResourceVersion() != object.GetResourceVersion() {
		return changedMeanwhile(gvk, object) // no event may come for that: what it changes may be nothing that the cache keeps
	}
	plan, err := ownership.NewRemoval(live, p.current, p.Decision.Decision)
	if err != nil || !plan.Needed() {
		return err
	}
	patch, err := patchOf(plan, live)
	if err != nil {
		return err
	}
	err = d.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(ownership.Manager))
	d.written(object, gvk, plan, p.why, err)
	if err != nil {
		return fmt.Errorf("patching what the %s inherits: %w", gvk.Kind, err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched away what the object no longer inherits, or adopted what it does", "changes", len(plan.Changes()))
	return nil
}

// changedMeanwhile makes the object be looked at again, like a write that failed because of a conflict.
func changedMeanwhile(gvk schema.GroupVersionKind, object client.Object) error {
	resource := schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}
	return apierrors.NewConflict(resource, object.GetName(), errors.New("the cache has another version of the object")) //nolint:wrapcheck // it is our own
}

// patchOf holds only for the version that was read: a conflict is retried from a fresh one.
func patchOf(plan *ownership.Plan, live *unstructured.Unstructured) ([]byte, error) {
	raw, err := live.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("writing the %s: %w", live.GetKind(), err)
	}
	operations, err := plan.Patch(raw, live.GetAPIVersion(), time.Now())
	if err != nil {
		return nil, err
	}
	operations = append(operations, jsonpatch.NewOperation("replace", "/metadata/resourceVersion", live.GetResourceVersion()))
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	return patch, nil
}
