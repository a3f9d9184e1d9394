// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// handover is how long a binding's previous parameters are kept after it selects others: an API server looks for policies
// and bindings once a second, and may hear of them late.
const handover = time.Minute

// Ensure makes the policy of a workload cluster give Nodes what these Machines declare; see Parameters about these. It writes
// only what differs. If the API server does not know such policies, meta.IsNoMatchError holds for the error. After a
// NoRoomError everything has been written nevertheless. registered says, even with an error, that the policy or its binding
// was written, and not the parameters alone.
//
// The client must read from the API server itself, as that of Remove: a cache would be filled with every ConfigMap of the
// workload cluster.
func Ensure(
	ctx context.Context, workload client.Client, cluster types.NamespacedName, machines []inherit.Machine, rules inherit.Policy, now time.Time,
) (registered bool, err error) {
	existing, err := list(ctx, workload)
	if err != nil {
		return false, err
	}
	objects, err := ownNamespace(ctx, workload, existing)
	if err != nil {
		return false, err
	}
	bound := find(existing, Binding(1))
	parts, noRoom := Parameters(cluster, machines, rules, boundParts(bound))
	for _, part := range parts {
		objects = append(objects, part)
	}
	desired, err := digested(append(objects, AdmissionPolicy(), Binding(len(parts)))...)
	if err != nil {
		return false, err
	}
	registered, err = apply(ctx, workload, desired, existing)
	if err == nil && (bound == nil || !registered && !now.Before(changedAt(bound).Add(handover))) {
		_, err = remove(ctx, workload, existing, desired)
	}
	return registered, cmp.Or(err, noRoom)
}

// Remove deletes everything, and reports whether the policy was bound. It is not an error if nothing is there, or never could be.
func Remove(ctx context.Context, workload client.Client) (removed bool, err error) {
	existing, err := list(ctx, workload)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return remove(ctx, workload, existing, nil)
}

// ownNamespace returns the namespace of the parameters, or nothing if others have made it. A new one becomes Heirloom's:
// Remove deletes it, with everything in it.
func ownNamespace(ctx context.Context, workload client.Client, existing []*unstructured.Unstructured) ([]client.Object, error) {
	namespace := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: labels()},
	}
	if find(existing, namespace) == nil {
		err := workload.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading namespace %s: %w", Namespace, err)
		}
		if err == nil {
			return nil, nil
		}
	}
	return []client.Object{namespace}, nil
}

// list returns everything that this package has made in the workload cluster, in the order in which it is made: referenced
// objects come before the objects that refer to them. What it returns may be deleted, and labels alone do not tell whose it is: a
// user of the workload cluster may be allowed to label a Namespace and not to delete it.
func list(ctx context.Context, workload client.Client) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("NamespaceList"), corev1.SchemeGroupVersion.WithKind("ConfigMapList"),
		admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyList"),
		admissionregistrationv1.SchemeGroupVersion.WithKind(bindingKind + "List"),
	} {
		objects := &unstructured.UnstructuredList{}
		objects.SetGroupVersionKind(kind)
		if err := workload.List(ctx, objects, client.MatchingLabels(labels())); err != nil {
			return nil, fmt.Errorf("listing what Heirloom has made in the workload cluster: %w", err)
		}
		for i := range objects.Items {
			if object := &objects.Items[i]; ownName(object) {
				found = append(found, object)
			}
		}
	}
	return found, nil
}

// ownName reports whether an object is where this package makes one of its kind. The names of ConfigMaps depend on the number of
// parts, which was another before.
func ownName(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "Namespace":
		return object.GetName() == Namespace
	case "ConfigMap":
		return object.GetNamespace() == Namespace
	default:
		return object.GetName() == Name
	}
}

// apply writes the desired objects that do not exist like that, in order, and reports whether it wrote the binding.
func apply(
	ctx context.Context, workload client.Client, desired, existing []*unstructured.Unstructured, options ...client.ApplyOption,
) (bound bool, err error) {
	options = append(options, client.FieldOwner(managedfields.Manager), client.ForceOwnership)
	for _, object := range desired {
		if has := find(existing, object); has != nil && carries(has.Object, object.Object, false) {
			continue
		}
		if err := workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
			return bound, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		bound = bound || object.GetKind() == bindingKind
	}
	return bound, nil
}

// remove deletes what exists and is not desired, the last first, and reports, even with an error, whether it deleted the
// binding.
func remove(ctx context.Context, workload client.Client, existing, desired []*unstructured.Unstructured) (unbound bool, err error) {
	for _, object := range slices.Backward(existing) {
		if find(desired, object) != nil {
			continue
		}
		err := workload.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
		if client.IgnoreNotFound(err) != nil {
			return unbound, fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		unbound = unbound || err == nil && object.GetKind() == bindingKind
	}
	return unbound, nil
}

// find returns the object of the same kind and name, or nil.
func find(objects []*unstructured.Unstructured, same client.Object) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == same.GetObjectKind().GroupVersionKind().Kind && client.ObjectKeyFromObject(u) == client.ObjectKeyFromObject(same)
	})
	if i < 0 {
		return nil
	}
	return objects[i]
}
