// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const longestStep = 2 * time.Minute

// simulation is a fleet through time: a keeper that takes the steps that are due, replicas that see the Secret late, and API
// servers that see the published bundle late.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	// late is how late each of them may be.
	late time.Duration

	secrets []version[state]
	bundles []version[*x509.CertPool]
	// seen are the versions that each replica and each API server knows.
	replicas, callers []int
	verified          map[[2]int]bool
}

// version is what something was from some time on.
type version[T any] struct {
	since time.Time
	value T
}

func newSimulation(t *testing.T, seed uint64, late time.Duration) *simulation {
	t.Helper()
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 0)), now: noon, late: late, verified: map[[2]int]bool{}}
	s.replicas, s.callers = make([]int, 3), make([]int, 4)
	st := begun(t, s.now)
	s.secrets = []version[state]{{s.now, st}}
	s.bundles = []version[*x509.CertPool]{{s.now, poolOf(st)}}
	return s
}

func poolOf(st state) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range st.cas() {
		pool.AddCert(ca)
	}
	return pool
}

// keep is what a keeper does.
func (s *simulation) keep() {
	st := s.secrets[len(s.secrets)-1].value
	if pool := poolOf(st); !pool.Equal(s.bundles[len(s.bundles)-1].value) {
		s.bundles = append(s.bundles, version[*x509.CertPool]{s.now, pool})
	}
	published := st.next != nil && st.nextPublished.IsZero()
	if published {
		st.nextPublished = s.now
	}
	st, changed, err := usual.advance(st, s.now)
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	if changed || published {
		s.secrets = append(s.secrets, version[state]{s.now, st})
	}
}

// catchUp lets somebody see a later version: now and then, and at the latest when he may no longer be late.
func catchUp[T any](s *simulation, seen *int, versions []version[T]) {
	for number := *seen; number < len(versions); number++ {
		if s.now.Sub(versions[number].since) >= s.late || s.random.IntN(200) == 0 {
			*seen = number
		}
	}
}

// step lets some time pass, and then happen what has to by then, and some of what may.
func (s *simulation) step() {
	s.now = s.now.Add(time.Duration(s.random.Int64N(int64(longestStep))) + 1)
	if s.random.IntN(4) > 0 {
		s.keep()
	}
	for i := range s.replicas {
		catchUp(s, &s.replicas[i], s.secrets)
	}
	for i := range s.callers {
		catchUp(s, &s.callers[i], s.bundles)
	}
}

// refused returns how many calls would fail now.
func (s *simulation) refused() int {
	count := 0
	for _, replica := range s.replicas {
		for _, caller := range s.callers {
			// A certificate does not outlive its CA, so that its own validity is all that changes with time.
			if !validAt(s.secrets[replica].value.leaf.Leaf, s.now) || !s.verifies(replica, caller) {
				count++
			}
		}
	}
	return count
}

// verifies reports whether a caller with that version of the bundle trusts what is served from that version of the Secret.
func (s *simulation) verifies(secret, bundle int) bool {
	versions := [2]int{secret, bundle}
	if verified, known := s.verified[versions]; known {
		return verified
	}
	leaf := s.secrets[secret].value.leaf.Leaf
	_, err := leaf.Verify(x509.VerifyOptions{Roots: s.bundles[bundle].value, CurrentTime: s.now, DNSName: usual.Hosts[0]})
	s.verified[versions] = err == nil
	return err == nil
}

// simulate steps through three rotations of the CA and returns how many calls failed, how many serving certificates there
// were, and how many CAs.
func simulate(t *testing.T, seed uint64, late time.Duration) (refused, leaves, cas int) {
	t.Helper()
	s := newSimulation(t, seed, late)
	seen, authorities := map[string]bool{}, map[string]bool{}
	for end := s.now.Add(3 * usual.CAValidity * 2 / 3); s.now.Before(end); {
		s.step()
		refused += s.refused()
		latest := s.secrets[len(s.secrets)-1].value
		seen[latest.leaf.Leaf.SerialNumber.String()] = true
		authorities[latest.current.Leaf.SerialNumber.String()] = true
	}
	return refused, len(seen), len(authorities)
}

// In each moment of a rotation, every API server can verify what every replica serves, as long as each of them sees a
// change within the grace.
func TestARotationLeavesNoGap(t *testing.T) {
	for seed := range uint64(4) {
		refused, leaves, cas := simulate(t, seed, usual.Grace-longestStep)
		NewWithT(t).Expect(refused).To(BeZero(), "seed %d", seed)
		NewWithT(t).Expect(cas).To(BeNumerically(">=", 3), "seed %d: there was something to get wrong", seed)
		NewWithT(t).Expect(leaves).To(BeNumerically(">", 3*cas), "seed %d", seed)
	}
}

// The grace is needed, and the simulation would notice.
func TestOneLaterThanTheGraceIsRefused(t *testing.T) {
	refused, _, _ := simulate(t, 0, 4*usual.Grace)
	NewWithT(t).Expect(refused).To(BeNumerically(">", 0))
}
