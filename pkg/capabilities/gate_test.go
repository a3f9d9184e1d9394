// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func invalid(at, detail string) error {
	return apierrors.NewInvalid(clusterv1.GroupVersion.WithKind("Machine").GroupKind(), "m",
		field.ErrorList{field.Forbidden(field.NewPath(at), detail)})
}

// What is known follows from what an API server answers to the dry run.
func TestDetect(t *testing.T) {
	const refusal = "taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled"
	for _, tc := range []struct {
		name    string
		before  inherit.TaintPropagation
		answer  error
		pruned  bool
		want    inherit.TaintPropagation
		problem string
	}{
		{name: "the taint comes back, so the gate is on", want: inherit.PropagationEnabled},
		{name: "the taint is dropped, so the CRD is older", pruned: true, want: inherit.PropagationDisabled},
		{name: "Cluster API refuses taints, so the gate is off", answer: invalid("spec.taints", refusal), want: inherit.PropagationDisabled},
		{name: "the gate was switched off", before: inherit.PropagationEnabled, answer: invalid("spec.taints", refusal), want: inherit.PropagationDisabled},
		{
			name: "another refusal tells nothing", before: inherit.PropagationEnabled,
			answer: invalid("spec.version", "no"), want: inherit.PropagationEnabled, problem: "spec.version",
		},
		{
			name: "nor does a refusal for another reason", before: inherit.PropagationEnabled,
			answer: invalid("spec.taints", "there are too many"), want: inherit.PropagationEnabled, problem: "too many",
		},
		{
			name: "nor does a value that names the gate", before: inherit.PropagationEnabled,
			answer: invalid("spec.version", refusal), want: inherit.PropagationEnabled, problem: "spec.version",
		},
		{
			name: "nor does a conflict, whatever its manager is called", before: inherit.PropagationEnabled,
			answer: apierrors.NewApplyConflict(nil, `conflict with "field not declared in schema": .spec.taints: field not declared in schema`),
			want:   inherit.PropagationEnabled, problem: "conflict",
		},
		{
			name: "nor does what a policy says", before: inherit.PropagationEnabled,
			answer: apierrors.NewForbidden(schema.GroupResource{}, "m", errors.New("MachineTaintPropagation: .spec.taints: field not declared in schema")),
			want:   inherit.PropagationEnabled, problem: "forbidden",
		},
		{
			name: "nor does an answer that is no API server's", before: inherit.PropagationEnabled,
			answer: errors.New("failed to create typed patch object (x): .spec.taints: field not declared in schema"),
			want:   inherit.PropagationEnabled, problem: "not declared",
		},
		{
			name: "a missing right tells nothing", before: inherit.PropagationEnabled,
			answer: apierrors.NewForbidden(schema.GroupResource{}, "m", errors.New("rbac")), want: inherit.PropagationEnabled, problem: "rbac",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			scheme := runtime.NewScheme()
			utilruntime.Must(clusterv1.AddToScheme(scheme))
			asked := 0
			c := fake.NewClientBuilder().WithScheme(scheme).
				WithObjects(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}).
				WithInterceptorFuncs(interceptor.Funcs{
					Apply: func(_ context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
						asked++
						applied := (&client.ApplyOptions{}).ApplyOptions(options)
						Expect(applied.DryRun).To(Equal([]string{metav1.DryRunAll}), "nothing is stored")
						if tc.pruned {
							prune(config)
						}
						return tc.answer
					},
				}).Build()
			g := &Gate{Client: c}
			g.state.Store(int32(tc.before))
			changes := g.Subscribe()

			err := g.detect(t.Context())

			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			Expect(asked).To(Equal(1))
			Expect(g.State()).To(Equal(tc.want))
			Expect(len(changes) == 1).To(Equal(tc.before != tc.want), "subscribers are told of changes only")
		})
	}
}

// What is being deleted may be all that there is, and may not go away before the answer is known. What lives comes first.
func TestWhomToAsk(t *testing.T) {
	Expect := NewWithT(t).Expect
	finalized := func(name string) *clusterv1.Machine {
		m := machine(name)
		m.Finalizers = []string{"machine.cluster.x-k8s.io"}
		return m
	}
	c := newClusterAPI(t, finalized("a"), finalized("b"))
	for _, tc := range []struct{ deleted, asked string }{{"a", "b"}, {"b", "b"}} {
		Expect(c.Delete(t.Context(), machine(tc.deleted))).To(Succeed())
		c.asked = nil
		Expect((&Gate{Client: c}).detect(t.Context())).To(Succeed())
		Expect(c.asked).To(ConsistOf(And(HaveField("GetKind()", "Machine"), HaveField("GetName()", tc.asked))))
	}
}

func TestNothingIsAskedWithoutAnObject(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	g := &Gate{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	NewWithT(t).Expect(g.detect(t.Context())).To(Succeed())
	NewWithT(t).Expect(g.State()).To(Equal(inherit.PropagationUnknown))
}

// prune drops the taints from an apply configuration, as a CRD without the field does from the answer.
func prune(config runtime.ApplyConfiguration) {
	if u, ok := config.(interface{ UnstructuredContent() map[string]any }); ok {
		delete(u.UnstructuredContent(), "spec")
	}
}
