// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestALoopTakesEachStepWhenItIsDue(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for _, tc := range []struct {
		name       string
		again      time.Duration
		err        error
		from, upTo time.Duration
	}{
		{name: "when the step says so", again: 20 * time.Second, from: 20 * time.Second, upTo: 22 * time.Second},
		{name: "not later than it looks", again: time.Hour, from: Look, upTo: Look * 11 / 10},
		{name: "soon after a failure", again: time.Hour, err: errors.New("broken"), from: Retry, upTo: Retry * 11 / 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				begin, steps := time.Now(), 0
				Run(ctx, Look, "Failed", func(context.Context) (time.Duration, error) {
					if steps++; steps == 2 {
						cancel()
					}
					return tc.again, tc.err
				})
				NewWithT(t).Expect(time.Since(begin)).To(And(BeNumerically(">=", tc.from), BeNumerically("<=", tc.upTo)))
			})
		})
	}
}

func TestTimesInAnnotations(t *testing.T) {
	Expect := NewWithT(t).Expect
	secret := &corev1.Secret{}
	Expect(TimeIn(secret, "since")).To(BeZero())
	PutTime(secret, "since", noon.In(time.FixedZone("east", 3600)))
	Expect(secret.Annotations).To(Equal(map[string]string{"since": "2026-11-21T12:00:00Z"}))
	Expect(TimeIn(secret, "since")).To(Equal(noon))
	PutTime(secret, "since", time.Time{})
	Expect(secret.Annotations).To(BeEmpty())
	secret.Annotations["since"] = "yesterday"
	Expect(TimeIn(secret, "since")).To(BeZero())
}

func TestUnknown(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(Unknown(time.Time{}, noon)).To(BeTrue())
	Expect(Unknown(noon.Add(time.Second), noon)).To(BeTrue())
	Expect(Unknown(noon, noon)).To(BeFalse())
}
