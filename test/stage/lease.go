// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// holdLease makes somebody else the leader, for longer than any test runs.
func (s *Stage) holdLease(ctx context.Context) error {
	now := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "leader-election-heirloom"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("the-stage"), LeaseDurationSeconds: ptr.To(int32(24 * 60 * 60)),
			AcquireTime: &now, RenewTime: &now,
		},
	}
	if err := s.Client.Create(ctx, lease); err != nil {
		return fmt.Errorf("holding the leader election lease: %w", err)
	}
	return nil
}
