// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// withoutProviders is a cache in which no provider's kind is listed: a read waits until its time is over.
type withoutProviders struct{ *reader }

func (r withoutProviders) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(runtime.Unstructured); ok {
		return &providers.NotListedError{Kind: "AcmeControlPlane." + inherit.ControlPlaneGroup, Reason: errors.New("conversion webhook failed")}
	}
	return r.reader.Get(ctx, key, into, options...)
}

// In admission, a control plane of a kind that is not listed is worth the one GET. Without it, the error is told apart.
func TestAControlPlaneOfAKindThatIsNotListed(t *testing.T) {
	m, cached := machine("m", acme+" AcmeControlPlane/cp"), withoutProviders{holds(t)}
	for _, tc := range []struct {
		name    string
		live    client.Reader
		found   bool
		counted metrics.LookupResult
		problem string
	}{
		{name: "the API server has it", live: holds(t, controlPlane("c")), found: true, counted: metrics.Live},
		{name: "the API server has it not", live: holds(t), counted: metrics.Missing},
		{name: "the API server cannot tell either", live: &reader{err: errors.New("out of order")}, counted: metrics.LookupFailed, problem: "out of order"},
		{name: "the API server is not to be asked", counted: metrics.LookupFailed, problem: "failed waiting for the informer to sync"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var counted []metrics.LookupResult
			chain := Chain{Reader: admission(cached, tc.live, func(result metrics.LookupResult) { counted = append(counted, result) })}
			owner, err := chain.MachineOwner(t.Context(), m)
			Expect(counted).To(Equal([]metrics.LookupResult{tc.counted}))
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(apierrors.IsTimeout(err)).To(Equal(tc.live == nil))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(owner.Template != nil).To(Equal(tc.found))
			Expect(owner.Outcome == inherit.OwnerNotFound).To(Equal(!tc.found))
		})
	}
}

// A Node inherits from its Machine as that is, and nobody waits for the control plane.
func TestANodeDoesNotWaitForAKindThatIsNotListed(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := machine("m", acme+" AcmeControlPlane/cp")
	m.Spec.ProviderID = "id"
	cluster := &clusterv1.Cluster{ObjectMeta: named("c", "")}
	chain := Chain{ManagementCluster: itself, Reader: admission(withoutProviders{holds(t, m, cluster)}, &reader{err: errors.New("it was asked")}, nil)}
	found, err := chain.EvaluateNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "id"}}, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(HaveField("Source.String()", "Machine ns/m"))
}

// What Cluster API refuses is given up even so: nothing could be written any more.
func TestAMachineWhoseOwnersKindIsNotListedGivesRefusedTaintsUp(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := machine("m", acme+" AcmeControlPlane/cp")
	chain := Chain{Reader: withoutProviders{holds(t)}}
	policy := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	_, err := Machines().Evaluate(t.Context(), &chain, m, policy)
	Expect(apierrors.IsTimeout(err)).To(BeTrue())

	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	Expect(Machines().Evaluate(t.Context(), &chain, m, policy)).To(HaveField("TaintsRefused", true))
}
