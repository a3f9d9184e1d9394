// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// Workload clusters can cost the management cluster's API server so many reads and no more. One that asks without end does not
// use up what another has for itself.
func TestReadsForWorkloadClustersAreLimited(t *testing.T) {
	Expect := NewWithT(t).Expect
	limits := newReads()
	reader := ownerchain.Limited{Reader: ordinary, Allow: limits.allow}
	limits.shared, limits.newOwn = rate.NewLimiter(0, 3), func() *rate.Limiter { return rate.NewLimiter(0, 2) }
	read := func(cluster string) error {
		ctx := context.WithValue(t.Context(), callerKey{}, types.NamespacedName{Namespace: "ns", Name: cluster})
		return reader.Get(ctx, types.NamespacedName{Namespace: "ns", Name: "ms"}, &clusterv1.MachineSet{})
	}
	const refused = "too many reads"
	for range 2 + 3 {
		Expect(read("greedy")).To(Succeed())
	}
	Expect(read("greedy")).To(MatchError(refused))
	for range 2 {
		Expect(read("modest")).To(Succeed())
	}
	Expect(read("modest")).To(MatchError(refused), "nothing is left of what all share")
}
