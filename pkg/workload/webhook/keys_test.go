// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestRotate(t *testing.T) {
	const period, grace = 720 * time.Hour, 10 * time.Minute
	at := start.Add
	for _, tc := range []struct {
		name    string
		keys    Keys
		now     time.Time
		want    Keys
		changed bool
		again   time.Duration
	}{
		{name: "without a key, one is made", now: start, want: Keys{current: key(9), currentSince: start}, changed: true, again: period},
		{
			name: "a key is used for the period",
			keys: Keys{current: key(1), currentSince: start, previous: key(0)}, now: at(period - time.Minute),
			want: Keys{current: key(1), currentSince: start, previous: key(0)}, again: time.Minute,
		},
		{
			name: "then the next one is written, and the one before the current goes",
			keys: Keys{current: key(1), currentSince: start, previous: key(0)}, now: at(period),
			want: Keys{current: key(1), currentSince: start, next: key(9), nextSince: at(period)}, changed: true, again: grace,
		},
		{
			name: "it is not used until every replica must have seen it",
			keys: Keys{current: key(1), currentSince: start, next: key(2), nextSince: at(period)}, now: at(period + grace - time.Second),
			want: Keys{current: key(1), currentSince: start, next: key(2), nextSince: at(period)}, again: time.Second,
		},
		{
			name: "then it takes the current one's place, which stays accepted",
			keys: Keys{current: key(1), currentSince: start, next: key(2), nextSince: at(period)}, now: at(period + grace),
			want: Keys{current: key(2), currentSince: at(period + grace), previous: key(1)}, changed: true, again: period,
		},
		{
			name: "a leader that was away for long still takes one step after the other",
			keys: Keys{current: key(1), currentSince: start}, now: at(10 * period),
			want: Keys{current: key(1), currentSince: start, next: key(9), nextSince: at(10 * period)}, changed: true, again: grace,
		},
		{
			name: "a key whose age is not known counts as new",
			keys: Keys{current: key(1), previous: key(0)}, now: start,
			want: Keys{current: key(1), currentSince: start, previous: key(0)}, changed: true, again: period,
		},
		{
			name: "so does one that a clock has dated ahead",
			keys: Keys{current: key(1), currentSince: at(10 * period)}, now: start,
			want: Keys{current: key(1), currentSince: start}, changed: true, again: period,
		},
		{
			name: "a next key whose age is not known waits for all of the grace",
			keys: Keys{current: key(1), currentSince: at(-period), next: key(2)}, now: start,
			want: Keys{current: key(1), currentSince: at(-period), next: key(2), nextSince: start}, changed: true, again: grace,
		},
		{
			name: "so does one that a clock has dated ahead, and no longer",
			keys: Keys{current: key(1), currentSince: at(-period), next: key(2), nextSince: at(period)}, now: start,
			want: Keys{current: key(1), currentSince: at(-period), next: key(2), nextSince: start}, changed: true, again: grace,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			keys, changed, again := schedule{period: period, grace: grace}.rotate(tc.keys, tc.now, func() []byte { return key(9) })
			Expect(keys).To(Equal(tc.want))
			Expect(changed).To(Equal(tc.changed))
			Expect(again).To(Equal(tc.again))
		})
	}
}

func TestKeysAreAcceptedWhicheverTheyAre(t *testing.T) {
	NewWithT(t).Expect(Keys{}.Accepted()).To(BeEmpty())
	NewWithT(t).Expect(Keys{current: key(1)}.Accepted()).To(Equal([][]byte{key(1)}))
	NewWithT(t).Expect(Keys{current: key(1), next: key(2), previous: key(3)}.Accepted()).To(ConsistOf(key(1), key(2), key(3)))
}

func TestKeysAreRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		made := randomKey()
		NewWithT(t).Expect(made).To(HaveLen(KeySize))
		seen[string(made)] = true
	}
	NewWithT(t).Expect(seen).To(HaveLen(100))
}
