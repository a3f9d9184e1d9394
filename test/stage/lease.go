// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releaseLease deletes the leader-election Lease of an earlier program on this control plane. Otherwise the program would wait until
// the Lease expires.
func (s *Stage) releaseLease(ctx context.Context) error {
	if s.options.On == nil {
		return nil
	}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, lease())); err != nil {
		return fmt.Errorf("releasing the leader election lease: %w", err)
	}
	return nil
}

func lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "leader-election-heirloom"}}
}

// holdLease creates the Lease with another holder, for longer than any test runs, so that the program does not become the leader.
func (s *Stage) holdLease(ctx context.Context) error {
	now := metav1.NewMicroTime(time.Now())
	held := lease()
	held.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("the-stage"), LeaseDurationSeconds: ptr.To(int32(24 * 60 * 60)),
		AcquireTime: &now, RenewTime: &now,
	}
	if err := s.Client.Create(ctx, held); err != nil {
		return fmt.Errorf("holding the leader election lease: %w", err)
	}
	return nil
}
