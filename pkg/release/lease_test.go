// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// heldBy is the Lease of a leader that has renewed it a while ago, for 15 seconds.
func heldBy(leader string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "leader"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &leader, LeaseDurationSeconds: ptr.To(int32(15)), LeaseTransitions: ptr.To(int32(3)),
		AcquireTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour))), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-renewed))),
	}}
}

// deposed is the Lease of a release that was interrupted while its leader had so much time left to stop.
func deposed(left time.Duration) *coordinationv1.Lease {
	lease := heldBy(holder, time.Second)
	lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(time.Now().Add(left)))
	return lease
}

// lease returns the Lease as it is.
func (s *apiServer) lease(t *testing.T) coordinationv1.LeaseSpec {
	t.Helper()
	lease := heldBy("", 0)
	NewWithT(t).Expect(s.others.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	return lease.Spec
}

// takes makes somebody else the holder of the Lease, by force.
func (s *apiServer) takes(t *testing.T, who string) {
	t.Helper()
	lease := heldBy("", 0)
	NewWithT(t).Expect(s.others.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &who, ptr.To(int32(15))
	NewWithT(t).Expect(s.others.Update(t.Context(), lease)).To(Succeed())
}

// Without leave to take the Lease, nothing is done while somebody leads.
func TestWhileSomebodyLeads(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lease   func() *coordinationv1.Lease
		options Options
		fail    error
		writes  []string
		problem string
	}{
		{name: "it refuses to begin", lease: func() *coordinationv1.Lease { return heldBy("pod", time.Second) },
			problem: "the leader pod is at work (Lease heirloom-system/leader), so that what is released now would be inherited again: " +
				"scale Heirloom down to 0 and wait for its Pods to be gone, or use --take-lease"},
		{name: "a dry run does not mind", lease: func() *coordinationv1.Lease { return heldBy("pod", time.Second) }, options: Options{DryRun: true}},
		{name: "nor one that would take the Lease", lease: func() *coordinationv1.Lease { return heldBy("pod", time.Second) }, options: Options{DryRun: true, TakeLease: true}},
		{name: "a leader that is gone does not matter", lease: func() *coordinationv1.Lease { return heldBy("pod", time.Minute) }, writes: []string{"patch Machine m"}},
		{name: "one that a release has deposed may still be at work", lease: func() *coordinationv1.Lease { return deposed(3 * time.Second) },
			problem: "the leader that an interrupted release has deposed is at work (Lease heirloom-system/leader), so that "},
		{name: "nor one that has given the Lease back", lease: func() *coordinationv1.Lease { return heldBy("", time.Second) }, writes: []string{"patch Machine m"}},
		{name: "it must be known", lease: func() *coordinationv1.Lease { return heldBy("", time.Second) }, fail: forbidden, problem: "looking for the Lease of Heirloom's leader: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				before := tc.lease()
				management := holds(served, before.DeepCopy(), teamed(t, core, "Machine", "m"))
				management.fail["get Lease"] = tc.fail
				err := releasing(management, tc.options).Run(t.Context())
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				}
				Expect(management.written()).To(Equal(tc.writes))
				Expect(management.lease(t)).To(Equal(before.Spec), "the Lease is as it was")
			})
		})
	}
}

// A leader gives up within the duration of its Lease once it cannot renew. Nothing is released before that has passed.
func TestTakingTheLease(t *testing.T) {
	for _, tc := range []struct {
		name        string
		lease       func() client.Object
		waits       time.Duration
		transitions int32
		verb        string
	}{
		{"from a leader that renews", func() client.Object { return heldBy("pod", time.Second) }, 15 * time.Second, 4, "update"},
		{"from one that is gone, as far as clocks agree", func() client.Object { return heldBy("pod", time.Hour) }, 15 * time.Second, 4, "update"},
		{"that was given back", func() client.Object { return heldBy("", time.Second) }, 0, 4, "update"},
		{"that an earlier release has held", func() client.Object { return heldBy(holder, time.Second) }, 0, 3, "update"},
		{"that an interrupted release has taken from a leader", func() client.Object { return deposed(3 * time.Second) }, 3 * time.Second, 3, "update"},
		{"where nobody has ever led", func() client.Object { return teamed(t, core, "MachineSet", "unrelated") }, 0, 1, "create"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, tc.lease(), teamed(t, core, "Machine", "m"))
				begun := time.Now()
				var released time.Duration
				management.before["patch Machine"] = func() { released = time.Since(begun) }
				r := releasing(management, Options{TakeLease: true})
				Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
				Expect(released).To(Equal(tc.waits))
				Expect(management.written()[0]).To(Equal(tc.verb + " Lease leader"))
				switch tc.waits {
				case 15 * time.Second:
					Expect(r.progress.String()).To(ContainSubstring("waiting 15s for the leader pod to stop\n"))
				case 0:
					Expect(r.progress.String()).NotTo(ContainSubstring("waiting"))
				default:
					Expect(r.progress.String()).To(ContainSubstring("waiting 3s for the leader that an interrupted release has deposed to stop\n"))
				}

				after := management.lease(t)
				Expect(after.AcquireTime.Time).NotTo(BeTemporally(">", begun.Add(released)), "an interrupted release would have waited as long")
				Expect(after.HolderIdentity).To(HaveValue(Equal("heirloom-release")))
				Expect(after.LeaseDurationSeconds).To(HaveValue(Equal(int32(60))), "nobody leads while the Deployment is being deleted")
				Expect(after.RenewTime.Time).To(BeTemporally("~", time.Now(), time.Millisecond))
				Expect(after.LeaseTransitions).To(HaveValue(Equal(tc.transitions)))
			})
		})
	}
}

// The Lease is renewed for as long as the work takes. A renewal that fails is told, and the next one may succeed.
func TestTheLeaseIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, heldBy("", 0), teamed(t, core, "Machine", "m"))
		management.before["patch Machine"] = func() {
			<-time.After(25 * time.Second)
			Expect(management.lease(t).RenewTime.Time).To(BeTemporally("~", time.Now().Add(-5*time.Second), time.Millisecond))
			management.broken("get Lease", errors.New("no route"))
			<-time.After(10 * time.Second)
			management.broken("get Lease", nil)
			<-time.After(10 * time.Second)
			Expect(management.lease(t).RenewTime.Time).To(BeTemporally("~", time.Now().Add(-5*time.Second), time.Millisecond))
		}
		r := releasing(management, Options{TakeLease: true})
		Expect(r.Run(t.Context())).To(Succeed())
		Expect(r.progress.String()).To(ContainSubstring("holding the Lease heirloom-system/leader of Heirloom's leader: no route\n"))
	})
}

const lostLease = "holding the Lease heirloom-system/leader of Heirloom's leader: it has been taken away, so Heirloom is at work again, by thief: " +
	"run this again when none of its Pods is starting or stopping"

// As soon as another leader is seen, nothing more is written: it would all be inherited again.
func TestALeaseThatIsLost(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after string
		writes        []string
	}{
		{"in the middle of the work", "get Machine", "", []string{}},
		{"while the last object is written", "", "patch Machine", []string{"patch Machine m"}},
		{"after the last write", "", "delete Secret", []string{"patch Machine m", "delete Secret keys"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, heldBy("", time.Second), teamed(t, core, "Machine", "m"), keys(key))
				steal := func() {
					<-time.After(time.Second)
					management.takes(t, "thief")
					<-time.After(renewal)
				}
				management.before[tc.before] = steal
				management.after[tc.after] = func(client.Object) { steal() }
				options := Options{TakeLease: true, WorkloadWebhookKey: client.ObjectKeyFromObject(keys(key))}
				Expect(releasing(management, options).Run(t.Context())).To(MatchError(ContainSubstring(lostLease)))
				written := slices.DeleteFunc(management.written(), func(write string) bool { return write == "update Lease leader" })
				Expect(written).To(Equal(tc.writes))
				Expect(management.lease(t).HolderIdentity).To(HaveValue(Equal("thief")), "it is not taken a second time")
			})
		})
	}
}

// Until something has been released, the Lease is taken again: a leader that is told to stop hands on what it no longer has.
func TestALeaseThatIsHandedOn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		times    int
		released time.Duration
	}{
		{"once", 1, renewal + 15*time.Second},
		{"twice", 2, 2*renewal + 15*time.Second},
		{"again and again", takings, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, heldBy("pod", time.Second), teamed(t, core, "Machine", "m"))
				for i := range tc.times {
					time.AfterFunc(time.Duration(i)*renewal+time.Second, func() { management.takes(t, "thief") })
				}
				begun := time.Now()
				var released time.Duration
				management.before["patch Machine"] = func() { released = time.Since(begun) }
				r := releasing(management, Options{TakeLease: true})
				err := r.Run(t.Context())
				Expect(released).To(Equal(tc.released), "the last leader has had the time to stop")
				if tc.released == 0 {
					Expect(err).To(MatchError(lostLease))
					return
				}
				Expect(err).NotTo(HaveOccurred())
				Expect(management.lease(t).HolderIdentity).To(HaveValue(Equal("heirloom-release")))
				Expect(r.progress.String()).To(ContainSubstring("waiting 15s for the leader pod to stop\n"))
				Expect(r.progress.String()).To(ContainSubstring("waiting 15s for the leader thief to stop\n"))
			})
		})
	}
}

// Leader and release write the same Lease; the slower one tries again.
func TestTakingTheLeaseWhileTheLeaderRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, heldBy("pod", time.Second))
		management.before["update Lease"] = func() { management.takes(t, "pod") }
		Expect(releasing(management, Options{TakeLease: true}).Run(t.Context())).To(Succeed())
		Expect(management.lease(t).HolderIdentity).To(HaveValue(Equal("heirloom-release")))
	})
}

func TestALeaseThatCannotBeTaken(t *testing.T) {
	for _, tc := range []struct {
		name, request string
		with          error
	}{
		{"because it may not be read", "get Lease", forbidden},
		{"because it may not be written", "update Lease", forbidden},
		{"because others are always faster", "update Lease", conflict},
		{"because the API server does not answer in time", "get Lease", context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, heldBy("pod", 0), teamed(t, core, "Machine", "m"))
			management.fail[tc.request] = tc.with
			Expect(releasing(management, Options{TakeLease: true}).Run(t.Context())).To(
				MatchError(ContainSubstring("holding the Lease heirloom-system/leader of Heirloom's leader: " + tc.with.Error())))
			Expect(management.written()).To(BeEmpty())
		})
	}
}

func TestNobodyWaitsForTheLeaderAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, heldBy("pod", time.Second), teamed(t, core, "Machine", "m"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		Expect(releasing(management, Options{TakeLease: true}).Run(ctx)).To(MatchError(context.DeadlineExceeded))
		Expect(management.written()).NotTo(ContainElement("patch Machine m"))
	})
}
