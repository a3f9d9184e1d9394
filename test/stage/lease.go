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

// setLease deletes the leader-election Lease of an earlier program on this control plane: the program would wait until the Lease
// expires. Without the loop, it creates the Lease with another holder, for longer than any test runs, so that the program does not become
// the leader.
func (s *Stage) setLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "leader-election-heirloom"}}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, lease)); err != nil {
		return fmt.Errorf("releasing the leader election lease: %w", err)
	}
	if !s.options.WithoutLoop {
		return nil
	}
	now := metav1.NewMicroTime(time.Now())
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("the-stage"), LeaseDurationSeconds: ptr.To(int32(24 * 60 * 60)),
		AcquireTime: &now, RenewTime: &now,
	}
	if err := s.Client.Create(ctx, lease); err != nil {
		return fmt.Errorf("holding the leader election lease: %w", err)
	}
	return nil
}
