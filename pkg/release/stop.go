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
	// takings is how many leaders a release takes the Lease from, one after the other, before it gives up.
	takings = 3
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
		return fmt.Errorf("%s is at work (Lease %s), so that %w: "+
			"scale Heirloom down to 0 and wait for its Pods to be gone, or use --take-lease", leader(lease.Spec), s.Lease, errRunning)
	}
	return nil
}

// leads reports whether a replica of Heirloom may be at work: it holds the Lease, or has lost it to a release just now.
func leads(lease coordinationv1.LeaseSpec, now time.Time) bool {
	if !led(lease) {
		return stopping(lease, now) > 0
	}
	return lease.RenewTime != nil && lease.RenewTime.Add(duration(lease)).After(now)
}

// led reports whether a Lease names a leader, living or not.
func led(lease coordinationv1.LeaseSpec) bool {
	return ptr.Deref(lease.HolderIdentity, "") != "" && *lease.HolderIdentity != holder
}

// stopping returns how long the leader may still work when the release takes the Lease: as long as it lasts. A release that has
// taken it says in AcquireTime when it has it to itself, for the next one if it is interrupted before.
func stopping(lease coordinationv1.LeaseSpec, now time.Time) time.Duration {
	switch {
	case led(lease):
		return duration(lease)
	case ptr.Deref(lease.HolderIdentity, "") == holder && lease.AcquireTime != nil:
		return max(0, lease.AcquireTime.Sub(now))
	default:
		return 0
	}
}

// leader names the leader for which a release has to wait.
func leader(lease coordinationv1.LeaseSpec) string {
	if led(lease) {
		return "the leader " + *lease.HolderIdentity
	}
	return "the leader that an interrupted release has deposed"
}

func duration(lease coordinationv1.LeaseSpec) time.Duration {
	return time.Duration(ptr.Deref(lease.LeaseDurationSeconds, 0)) * time.Second
}

// holdingLease does its work while the release has the Lease.
func (s *session) holdingLease(ctx context.Context, work func(context.Context) error) error {
	if err := s.depose(ctx); err != nil {
		return err
	}
	return s.keepingLease(ctx, work)
}

// depose takes the Lease away from the leader and waits until it has given up, which it does within the duration of the Lease
// once it cannot renew. If it is told to stop meanwhile, it may hand on a Lease that it no longer has: client-go decides
// by what it has last observed. As nothing has been released yet, the Lease is then taken from its successor, too.
func (s *session) depose(ctx context.Context) error {
	for taken := 1; ; taken++ {
		before, err := s.takeLease(ctx, true)
		left := stopping(before, time.Now())
		if err != nil || left <= 0 {
			return err
		}
		s.report.note("waiting %s for %s to stop", left.Round(time.Second), leader(before))
		err = s.keepingLease(ctx, func(ctx context.Context) error {
			select {
			case <-time.After(left):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if !errors.Is(err, errTaken) || taken == takings {
			return err
		}
	}
}

// keepingLease renews the Lease until the work is done, and once more after that. If another holder takes it, the work is
// told to end.
func (s *session) keepingLease(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := s.renewing(ctx, cancel)
	defer stop()
	err := work(ctx)
	stop() // two writers would conflict
	if err == nil {
		_, err = s.takeLease(ctx, false)
	}
	if cause := context.Cause(ctx); err != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
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
				lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(now.Add(stopping(before, now.Time))))
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
