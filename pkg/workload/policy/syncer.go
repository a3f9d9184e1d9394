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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/objects"
)

// Syncer keeps the policy, its binding and its parameters in workload clusters. Its clients have to read from the API
// servers themselves: one that reads from a cache would fill it with every ConfigMap of the workload cluster.
type Syncer struct {
	// Namespace is where the parameters are; empty means DefaultNamespace. It is created if it is not there, and then is
	// Heirloom's: Remove deletes it, with all that is in it. One that was there before is left.
	Namespace string
	// Registered says whether the Node of a Machine has been initialized, so that no parameters are kept for it any more.
	// Without it, they are kept for every Machine.
	Registered func(cluster types.NamespacedName, m *capi.Machine) bool
	// Now is the time; without it, it is time.Now.
	Now func() time.Time
}

// handover is for how long what a binding has selected is kept after it has been made to select something else: an API server
// looks for policies and bindings once a second, and may be late to hear of them.
const handover = time.Minute

// Ensure makes the policy of a workload cluster give Nodes what these Machines declare; see Parameters about these. Where
// all is there already, nothing is written. A workload cluster whose API server does not know such policies is answered
// with an error for which meta.IsNoMatchError holds. After a NoRoomError everything has been written nevertheless. registered
// says, also beside an error, that the API server has been told of the policy or of where its parameters are, and not of these alone.
func (s Syncer) Ensure(ctx context.Context, workload client.Client, cluster types.NamespacedName, machines []*capi.Machine, policy inherit.Policy) (registered bool, err error) {
	existing, err := list(ctx, workload)
	if err != nil {
		return false, err
	}
	binding := bindingOf(existing)
	parts, noRoom := Parameters(s.namespace(), cluster, machines, policy, s.registered(cluster), boundParts(binding))
	var desired []client.Object
	for _, part := range parts {
		desired = append(desired, part)
	}
	desired = append(desired, AdmissionPolicy(), Binding(s.namespace(), len(parts)))
	ours, err := s.ownsNamespace(ctx, workload)
	if err != nil {
		return false, err
	}
	if ours {
		desired = append([]client.Object{namespace(s.namespace())}, desired...)
	}
	for i, object := range desired {
		if desired[i], err = digested(object); err != nil {
			return false, err
		}
	}
	changes := objects.Diff(desired, existing, upToDate)
	if binding != nil && (slices.ContainsFunc(changes.Apply, isBinding) || s.now().Before(changedAt(binding).Add(handover))) {
		changes.Delete = nil // at a later look
	}
	made, err := changes.Write(ctx, workload)
	return slices.ContainsFunc(made.Apply, isBinding), cmp.Or(err, noRoom)
}

// Remove takes everything away, and reports whether the policy was bound. It is not an error if nothing is there, or never could be.
func (s Syncer) Remove(ctx context.Context, workload client.Client) (removed bool, err error) {
	existing, err := list(ctx, workload)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	made, err := objects.Diff(nil, existing, upToDate).Write(ctx, workload)
	return slices.ContainsFunc(made.Delete, isBinding), err
}

func (s Syncer) namespace() string {
	if s.Namespace == "" {
		return DefaultNamespace
	}
	return s.Namespace
}

func (s Syncer) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func (s Syncer) registered(cluster types.NamespacedName) func(*capi.Machine) bool {
	if s.Registered == nil {
		return nil
	}
	return func(m *capi.Machine) bool { return s.Registered(cluster, m) }
}

// ownsNamespace reports whether the namespace is Heirloom's, or is to become so because nobody has it.
func (s Syncer) ownsNamespace(ctx context.Context, workload client.Client) (bool, error) {
	found := &corev1.Namespace{}
	err := workload.Get(ctx, client.ObjectKey{Name: s.namespace()}, found)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", s.namespace(), err)
	}
	return k8slabels.SelectorFromSet(labels()).Matches(k8slabels.Set(found.Labels)), nil
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()},
	}
}

// list returns what this package has made in the workload cluster, wherever its parameters were, in the order in which it
// is made: what something refers to is there first.
func list(ctx context.Context, workload client.Client) ([]client.Object, error) {
	var found []client.Object
	for _, kind := range []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.ConfigMapList{},
		&admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
	} {
		if err := workload.List(ctx, kind, client.MatchingLabels(labels())); err != nil {
			return nil, fmt.Errorf("listing what Heirloom has made in the workload cluster: %w", err)
		}
		items, err := meta.ExtractList(kind)
		if err != nil {
			return nil, fmt.Errorf("reading %T: %w", kind, err)
		}
		for _, item := range items {
			object, ok := item.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is no object", item)
			}
			gvk, err := workload.GroupVersionKindFor(object)
			if err != nil {
				return nil, fmt.Errorf("finding the kind of %T: %w", object, err)
			}
			// Items of a typed list do not say their kind.
			object.GetObjectKind().SetGroupVersionKind(gvk)
			found = append(found, object)
		}
	}
	return found, nil
}

func isBinding(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind().Kind == "MutatingAdmissionPolicyBinding"
}
