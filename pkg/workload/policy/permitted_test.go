// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// unknowing is a mapping that cannot be had.
type unknowing struct{ meta.RESTMapper }

func (unknowing) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

// Whether policies are served is told by v1 alone, because earlier versions are alpha and beta.
func TestWhetherPoliciesAreServed(t *testing.T) {
	mapper := func(versions ...string) meta.RESTMapper {
		mapper := meta.NewDefaultRESTMapper(nil)
		for _, version := range versions {
			mapper.Add(schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: version, Kind: "MutatingAdmissionPolicy"}, meta.RESTScopeRoot)
		}
		return mapper
	}
	for _, tc := range []struct {
		name    string
		mapper  meta.RESTMapper
		served  bool
		problem error
	}{
		{name: "Kubernetes 1.36", mapper: mapper("v1", "v1beta1"), served: true},
		{name: "Kubernetes 1.34", mapper: mapper("v1beta1")},
		{name: "Kubernetes 1.30", mapper: mapper()},
		{name: "an API server that does not answer", mapper: unknowing{}, problem: errors.New("looking for MutatingAdmissionPolicies in the workload cluster: no answer")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			served, err := policy.Served(fake.NewClientBuilder().WithRESTMapper(tc.mapper).Build())
			if tc.problem != nil {
				NewWithT(t).Expect(err).To(MatchError(tc.problem.Error()))
				return
			}
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(served).To(Equal(tc.served))
		})
	}
}

// To try a policy leaves nothing behind, whatever the API server answers.
func TestAPolicyIsTriedWithoutATrace(t *testing.T) {
	for refused, asked := range map[string][]string{
		"":                                     {"apply MutatingAdmissionPolicy nodes.heirloom.dev", "apply MutatingAdmissionPolicyBinding nodes.heirloom.dev"},
		"apply MutatingAdmissionPolicy":        {"apply MutatingAdmissionPolicy nodes.heirloom.dev"},
		"apply MutatingAdmissionPolicyBinding": {"apply MutatingAdmissionPolicy nodes.heirloom.dev", "apply MutatingAdmissionPolicyBinding nodes.heirloom.dev"},
	} {
		t.Run("refused: "+refused, func(t *testing.T) {
			w, no := newWorkload(t), errors.New("no")
			w.fail[refused] = no
			dry := interceptor.NewClient(w, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					w.Expect((&client.ApplyOptions{}).ApplyOptions(options).DryRun).To(Equal([]string{metav1.DryRunAll}))
					return c.Apply(ctx, config, options...)
				},
			})
			err := policy.Try(t.Context(), dry)
			if refused == "" {
				w.Expect(err).NotTo(HaveOccurred())
			} else {
				w.Expect(err).To(MatchError(no))
			}
			w.Expect(w.writes).To(Equal(asked))
		})
	}
}
