// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/workload/objects"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"key": value},
	}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func sameValue(has, wants client.Object) bool {
	return has.(*corev1.ConfigMap).Data["key"] == wants.(*corev1.ConfigMap).Data["key"]
}

func names(of []client.Object) []string {
	all := []string{}
	for _, object := range of {
		all = append(all, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
	}
	return all
}

// What is missing or differs is applied, in order; what is not desired is deleted, the last first. Objects of another kind
// are others, also under the same name.
func TestOnlyDifferencesAreChanges(t *testing.T) {
	Expect := NewWithT(t).Expect
	changes := objects.Diff(
		[]client.Object{configMap("new", "1"), configMap("same", "1"), configMap("other", "1")},
		[]client.Object{secret("new"), configMap("same", "1"), configMap("other", "2"), configMap("old", "1")}, sameValue)
	Expect(names(changes.Apply)).To(Equal([]string{"ConfigMap new", "ConfigMap other"}))
	Expect(names(changes.Delete)).To(Equal([]string{"ConfigMap old", "Secret new"}))
}

// What was written before an error is known, because it has its effect already.
func TestWhatWasWrittenIsToldBesideAnError(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name          string
		apply, delete string // the object whose write fails
		err           error
		applied, gone []string
		problem       string
	}{
		{name: "nothing fails", applied: []string{"ConfigMap a", "ConfigMap b"}, gone: []string{"ConfigMap c", "ConfigMap d"}},
		{name: "the first apply fails", apply: "a", err: broken, problem: "applying ConfigMap a: broken", applied: []string{}, gone: []string{}},
		{name: "the second apply fails", apply: "b", err: broken, problem: "applying ConfigMap b: broken", applied: []string{"ConfigMap a"}, gone: []string{}},
		{name: "a delete fails", delete: "d", err: broken, problem: "deleting ConfigMap d: broken", applied: []string{"ConfigMap a", "ConfigMap b"}, gone: []string{"ConfigMap c"}},
		{
			name: "somebody else was faster", delete: "c", err: apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "c"),
			applied: []string{"ConfigMap a", "ConfigMap b"}, gone: []string{"ConfigMap d"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := fake.NewClientBuilder().WithObjects(configMap("c", "1"), configMap("d", "1")).WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					if object.GetName() == tc.delete {
						return tc.err
					}
					return c.Delete(ctx, object, options...)
				},
				Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if named, ok := config.(interface{ GetName() string }); ok && named.GetName() == tc.apply {
						return tc.err
					}
					return c.Apply(ctx, config, options...)
				},
			}).Build()
			made, err := objects.Changes{Apply: []client.Object{configMap("a", "1"), configMap("b", "1")}, Delete: []client.Object{configMap("c", "1"), configMap("d", "1")}}.Write(t.Context(), server)
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(tc.problem))
			}
			Expect(names(made.Apply)).To(Equal(tc.applied))
			Expect(names(made.Delete)).To(Equal(tc.gone))
		})
	}
}
