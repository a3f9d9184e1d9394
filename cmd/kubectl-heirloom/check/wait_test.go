// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestUntil(t *testing.T) {
	down := errors.New("connection refused")
	is := func(statuses ...Status) *Report {
		r := &Report{}
		for _, status := range statuses {
			r.Checks = append(r.Checks, Result{Status: status})
		}
		return r
	}
	for _, tc := range []struct {
		name    string
		answers []any
		// asked is how often.
		asked int
		want  any
	}{
		{name: "all well at once", answers: []any{is(OK, Warning, Unknown)}, asked: 1},
		{name: "until nothing fails", answers: []any{is(OK, Failed), is(OK, Failed), is(OK, Warning)}, asked: 3},
		{name: "until the API server answers", answers: []any{down, is(Failed), is(OK)}, asked: 3},
		{name: "until something is known", answers: []any{is(Unknown, Skipped), is(OK, Unknown)}, asked: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			asked, told := 0, 0
			run := func(context.Context) (*Report, error) {
				answer := tc.answers[asked]
				asked++
				report, _ := answer.(*Report)
				err, _ := answer.(error)
				return report, err
			}
			report, err := run(t.Context())
			report, err = Until(t.Context(), 0, time.Hour, report, err, run, func(*Report, error) { told++ })
			Expect(err).NotTo(HaveOccurred())
			Expect(report).To(BeIdenticalTo(tc.answers[len(tc.answers)-1]))
			Expect(asked).To(Equal(tc.asked))
			Expect(told).To(Equal(tc.asked - 1))
		})
	}
}

// When the time is over, the last whole answer counts.
func TestUntilTheTimeIsOver(t *testing.T) {
	Expect := NewWithT(t).Expect
	ctx, cancel := context.WithCancel(t.Context())
	first := &Report{Checks: []Result{{Status: Failed}}}
	report, err := Until(ctx, 0, time.Hour, first, nil, func(context.Context) (*Report, error) {
		cancel()
		return nil, context.Canceled
	}, func(*Report, error) {})
	Expect(report, err).To(BeIdenticalTo(first))
}
