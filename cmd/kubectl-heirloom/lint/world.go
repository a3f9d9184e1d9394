// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // deprecated and still served
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// world is a management cluster that has the objects of the files and nothing else. It is what the owner chain reads.
type world struct {
	scheme  *runtime.Scheme
	objects map[id]client.Object
	// files are the objects that come from a file.
	files map[id]*subject
	// made counts the objects without a UID, which get one.
	made int
	// toCome are the objects that no file has.
	toCome []id
}

type id struct {
	schema.GroupKind
	client.ObjectKey
}

func newWorld() *world {
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(clusterv1beta1.AddToScheme(scheme))
	return &world{scheme: scheme, objects: map[id]client.Object{}, files: map[id]*subject{}}
}

// chain returns the owner chain of a Cluster's objects. Control planes count as having room for everything that the contract names.
func (w *world) chain(cluster types.NamespacedName) *owners.Chain {
	chain := &owners.Chain{
		Cache: w,
		Layout: func(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
			return inherit.ControlPlaneLayout(gvk.Version, func(...string) bool { return true }), nil
		},
	}
	return chain.Within(cluster)
}

// put adds an object, or replaces the one of that name.
func (w *world) put(object client.Object) {
	if object.GetUID() == "" {
		w.made++
		object.SetUID(types.UID(strconv.Itoa(w.made)))
	}
	w.objects[idOf(object)] = object
	if w.files[idOf(object)] == nil {
		w.toCome = append(w.toCome, idOf(object))
	}
}

// forget removes what no file has. Otherwise a search would take longer with each object that is judged.
func (w *world) forget() {
	for _, of := range w.toCome {
		if w.files[of] == nil {
			delete(w.objects, of)
		}
	}
	w.toCome = nil
}

// file returns the object of a file that an owner is, or nil if none of the files has it.
func (w *world) file(ref inherit.Ref) *subject {
	object, ok := ref.Object.(client.Object)
	if !ok {
		return nil
	}
	return w.files[idOf(object)]
}

func idOf(object client.Object) id {
	return id{object.GetObjectKind().GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
}

// Get implements client.Reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, w.scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", into, err)
	}
	found, ok := w.objects[id{gvk.GroupKind(), key}]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return copyInto(found, into)
}

// List implements client.Reader, by the indexes of an owner chain.
func (w *world) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	by := (&client.ListOptions{}).ApplyOptions(options)
	gvk, err := apiutil.GVKForObject(list, w.scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	var found []runtime.Object
	for of, object := range w.objects {
		if of.Kind+"List" == gvk.Kind && of.Group == gvk.Group && matches(object, by) {
			found = append(found, object.DeepCopyObject())
		}
	}
	return meta.SetList(list, found)
}

func matches(object client.Object, by *client.ListOptions) bool {
	if by.Namespace != "" && by.Namespace != object.GetNamespace() {
		return false
	}
	return by.FieldSelector == nil || !slices.ContainsFunc(by.FieldSelector.Requirements(), func(field fields.Requirement) bool {
		return !slices.Contains(owners.IndexValues(object, field.Field), field.Value)
	})
}

// copyInto writes an object into one of another Go type.
func copyInto(from, into client.Object) error {
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", client.ObjectKeyFromObject(from), err)
	}
	into.GetObjectKind().SetGroupVersionKind(from.GetObjectKind().GroupVersionKind())
	return nil
}
