// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// state is what the Secret holds. The zero value is that of a new one.
type state struct {
	// current signs leaf. next is published and signs nothing yet. A replica that sees the Secret late may still serve a
	// certificate of previous, whose key is gone.
	current, next *tls.Certificate
	previous      *x509.Certificate
	leaf          *tls.Certificate
	// currentSince is when the current CA became current; nextPublished is since when API servers can know the next one.
	// Zero: unknown.
	currentSince, nextPublished time.Time
}

// cas returns the CA certificates that verify every certificate that is or will soon be served.
func (s state) cas() []*x509.Certificate {
	var cas []*x509.Certificate
	for _, a := range []*tls.Certificate{s.current, s.next} {
		if a != nil {
			cas = append(cas, a.Leaf)
		}
	}
	if s.previous != nil {
		cas = append(cas, s.previous)
	}
	return cas
}

// Schedule says when certificates are replaced: each when a third of its validity is left.
type Schedule struct {
	// Hosts are the DNS names and IP addresses that the serving certificate is for.
	Hosts []string
	// Validity and CAValidity are how long a serving certificate and a CA are valid.
	Validity, CAValidity time.Duration
	// Grace is how long a CA is published before and after its use. Within it, replicas see a change of the Secret, and API
	// servers a change of the CA bundle.
	Grace time.Duration
}

// advance takes all steps that are due and returns whether there were any. What it does to the CAs must be published
// before it is called again.
func (s Schedule) advance(st state, now time.Time) (result state, changed bool, err error) {
	for _, step := range []func(*state, time.Time) (bool, error){s.begin, s.retire, s.prepare, s.promote, s.renew} {
		did, err := step(&st, now)
		if err != nil {
			return state{}, false, err
		}
		changed = changed || did
	}
	return st, changed, nil
}

// begin makes a CA at once if there is no valid one. It cannot be published first.
func (s Schedule) begin(st *state, now time.Time) (bool, error) {
	if st.current != nil && validAt(st.current.Leaf, now) {
		return false, nil
	}
	if st.next != nil && validAt(st.next.Leaf, now) {
		*st = state{current: st.next, currentSince: now}
		return true, nil
	}
	current, err := newAuthority(now, s.CAValidity)
	*st = state{current: current, currentSince: now}
	return true, err
}

// retire drops the previous CA when no replica can serve a certificate of it any more.
func (s Schedule) retire(st *state, now time.Time) (bool, error) {
	switch {
	case st.previous == nil:
		return false, nil
	case rotation.Unknown(st.currentSince, now):
		st.currentSince = now
		return true, nil
	case now.Sub(st.currentSince) < s.Grace:
		return false, nil
	}
	st.previous = nil
	return true, nil
}

// prepare makes the next CA.
func (s Schedule) prepare(st *state, now time.Time) (bool, error) {
	due := now.After(st.current.Leaf.NotAfter.Add(-s.CAValidity / 3))
	if st.next == nil && !due || st.next != nil && validAt(st.next.Leaf, now) {
		return false, nil
	}
	next, err := newAuthority(now, s.CAValidity)
	st.next, st.nextPublished = next, time.Time{}
	return true, err
}

// promote makes the next CA the current one when all API servers know it.
func (s Schedule) promote(st *state, now time.Time) (bool, error) {
	if st.next == nil || rotation.Unknown(st.nextPublished, now) || now.Sub(st.nextPublished) < s.Grace {
		return false, nil
	}
	st.previous, st.current, st.currentSince = st.current.Leaf, st.next, now
	st.next, st.nextPublished = nil, time.Time{}
	return true, nil
}

// renew makes a serving certificate, unless there is one that is signed by the current CA, is for all of our hosts and is
// valid for long enough.
func (s Schedule) renew(st *state, now time.Time) (bool, error) {
	hosts := sets.New(s.Hosts...)
	if st.leaf != nil && s.lasts(st.leaf.Leaf, st.current.Leaf, now) {
		served := hostsOf(st.leaf.Leaf)
		if served.IsSuperset(hosts) {
			return false, nil
		}
		// In a rolling update there are replicas with other hosts, which would take ours away again.
		hosts = hosts.Union(served)
	}
	leaf, err := newServing(st.current, sets.List(hosts), now, s.Validity)
	st.leaf = leaf
	return true, err
}

// lasts reports whether a serving certificate is of that CA and need not be renewed yet. Renewing one that expires with its
// CA would gain nothing.
func (s Schedule) lasts(leaf, ca *x509.Certificate, now time.Time) bool {
	if leaf.CheckSignatureFrom(ca) != nil || !validAt(leaf, now) {
		return false
	}
	return leaf.NotAfter.Equal(ca.NotAfter) || !now.After(leaf.NotAfter.Add(-s.Validity/3))
}

// look is how often to check whether a step is due, or was taken by another replica: often enough to notice each step well
// before the next one.
func (s Schedule) look() time.Duration {
	return min(rotation.Look, s.Grace/4, s.Validity/12)
}
