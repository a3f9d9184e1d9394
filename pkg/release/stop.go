// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// holder is in the Lease as long as a release holds it.
	holder = "heirloom-release"
	// held is how long the Lease stays taken after the last renewal: no replica becomes the leader while the Deployment is
	// being deleted.
	held = time.Minute
	// renewal is how often it is renewed.
	renewal = 10 * time.Second
)

// errTaken says that another holder has the Lease that the release should hold.
var errTaken = errors.New("it has been taken away, so Heirloom is at work again,")

// errRunning says why a release does not begin while Heirloom runs.
var errRunning = errors.New("what is released now would be inherited again")

// stopWebhooks makes sure that no webhook of the management cluster injects again what is released.
func (s *session) stopWebhooks(ctx context.Context) error {
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		err := s.management.Get(ctx, types.NamespacedName{Name: s.WebhookConfiguration}, configuration)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking for Heirloom's webhook configurations: %w", err)
		}
		switch {
		case s.DeleteWebhookConfigurations:
			if err := s.management.Delete(ctx, configuration); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting Heirloom's webhook configurations: %w", err)
			}
		case !s.DryRun:
			return fmt.Errorf("the webhook configurations %q are still there, so that %w: "+
				"stop Heirloom first, and delete them or use --delete-webhook-configurations", s.WebhookConfiguration, errRunning)
		}
	}
	return nil
}

// withoutLeader does its work while no replica of Heirloom runs the loop.
func (s *session) withoutLeader(ctx context.Context, work func(context.Context) error) error {
	if s.DryRun {
		return work(ctx)
	}
	if s.TakeLease {
		return s.holdingLease(ctx, work)
	}
	if err := s.noLeader(ctx); err != nil {
		return err
	}
	return work(ctx)
}

// noLeader makes sure that no replica of Heirloom leads.
func (s *session) noLeader(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	if err := s.management.Get(ctx, s.Lease, lease); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking for the Lease of Heirloom's leader: %w", err)
	}
	if leads(lease.Spec, time.Now()) {
		return fmt.Errorf("%s leads Heirloom (Lease %s), so that %w: "+
			"scale Heirloom down to 0 and wait for its Pods to be gone, or use --take-lease", *lease.Spec.HolderIdentity, s.Lease, errRunning)
	}
	return nil
}

// leads reports whether a replica of Heirloom, and not a release, holds the Lease.
func leads(lease coordinationv1.LeaseSpec, now time.Time) bool {
	return led(lease) && lease.RenewTime != nil && lease.RenewTime.Add(duration(lease)).After(now)
}

// led reports whether a Lease names a leader, living or not.
func led(lease coordinationv1.LeaseSpec) bool {
	return ptr.Deref(lease.HolderIdentity, "") != "" && *lease.HolderIdentity != holder
}

func duration(lease coordinationv1.LeaseSpec) time.Duration {
	return time.Duration(ptr.Deref(lease.LeaseDurationSeconds, 0)) * time.Second
}

// holdingLease takes the Lease away from the leader, and keeps it until the work is done and a little longer. A leader that
// cannot renew gives up within the duration of the Lease, so the work begins after that.
func (s *session) holdingLease(ctx context.Context, work func(context.Context) error) error {
	before, err := s.takeLease(ctx, true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := s.renewing(ctx, cancel)
	defer stop()
	if led(before) {
		s.report.note("waiting %s for the leader %s to stop", duration(before), *before.HolderIdentity)
		select {
		case <-time.After(duration(before)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err = work(ctx)
	stop() // two writers would conflict
	if err == nil {
		_, err = s.takeLease(ctx, false)
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// renewing keeps the Lease until stop has returned. It calls lost if another holder has taken the Lease.
func (s *session) renewing(ctx context.Context, lost context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_, err := s.takeLease(ctx, false)
			switch {
			case errors.Is(err, errTaken):
				lost(err)
			case err != nil && ctx.Err() == nil:
				s.report.note("%v", err)
			}
		}, renewal)
	})
	return func() {
		cancel()
		renewals.Wait()
	}
}

// takeLease writes the release into the Lease as its holder, and returns what was there before. It takes the Lease from
// another holder only with fromOthers.
func (s *session) takeLease(ctx context.Context, fromOthers bool) (before coordinationv1.LeaseSpec, err error) {
	// The error that it returns is useless: it is nil also after a request that has timed out.
	_ = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Lease.Namespace, Name: s.Lease.Name}}
		_, err = controllerutil.CreateOrUpdate(ctx, s.Management, lease, func() error {
			before = *lease.Spec.DeepCopy()
			if led(before) && !fromOthers {
				return fmt.Errorf("%w by %s: run this again when none of its Pods is starting or stopping", errTaken, *before.HolderIdentity)
			}
			now := ptr.To(metav1.NowMicro())
			if ptr.Deref(before.HolderIdentity, "") != holder {
				lease.Spec.AcquireTime = now
				lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(before.LeaseTransitions, 0) + 1)
			}
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(holder), now
			lease.Spec.LeaseDurationSeconds = ptr.To(int32(held / time.Second))
			return nil
		})
		return err
	})
	if err != nil {
		return before, fmt.Errorf("holding the Lease %s of Heirloom's leader: %w", s.Lease, err)
	}
	return before, nil
}
