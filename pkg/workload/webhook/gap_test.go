// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

const (
	simulatedPeriod = 2 * time.Hour
	simulatedGrace  = 10 * time.Minute
	longestStep     = 2 * time.Minute
)

// simulation is a fleet through time: a leader that rotates the keys, replicas that see the Secret late, and API servers
// that go on calling the path that they were told last.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	// late is how late a replica sees the Secret, told how long an API server may not be told its path anew.
	late, told time.Duration

	versions []version
	replicas []*replica
	callers  []*caller
}

// version is what the Secret was from some time on.
type version struct {
	since  time.Time
	secret *corev1.Secret
}

type replica struct {
	Store

	// seen is the version that it knows.
	seen int
}

type caller struct {
	cluster Identity
	path    string
	since   time.Time
}

func newSimulation(t *testing.T, seed uint64, late, told time.Duration) *simulation {
	t.Helper()
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 0)), now: start, late: late, told: told}
	for range 3 {
		s.replicas = append(s.replicas, &replica{seen: -1})
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.callers = append(s.callers, &caller{cluster: named("fleet", name)})
	}
	s.rotate()
	for _, r := range s.replicas {
		s.show(r, 0)
	}
	for _, c := range s.callers {
		s.tell(c)
	}
	return s
}

func (s *simulation) rotate() {
	keys, secret := Keys{}, secretWith(nil)
	if s.versions != nil {
		var err error
		secret = s.latest().DeepCopy()
		keys, err = keysIn(secret)
		NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	}
	if keys, changed, _ := (schedule{period: simulatedPeriod, grace: simulatedGrace}).rotate(keys, s.now, randomKey); changed {
		keys.put(secret)
		s.versions = append(s.versions, version{since: s.now, secret: secret})
	}
}

func (s *simulation) latest() *corev1.Secret {
	return s.versions[len(s.versions)-1].secret
}

// show lets a replica see a version, but never an older one again.
func (s *simulation) show(r *replica, number int) {
	if number > r.seen {
		r.seen = number
		NewWithT(s.t).Expect(r.Set(s.versions[number].secret)).To(Succeed())
	}
}

// tell is what Ensure does, on whatever replica leads.
func (s *simulation) tell(c *caller) {
	c.path, c.since = Path(s.replicas[s.random.IntN(len(s.replicas))].Current(), c.cluster), s.now
}

// step lets some time pass, and then happen what has to by then, and some of what may.
func (s *simulation) step() {
	s.now = s.now.Add(time.Duration(s.random.Int64N(int64(longestStep))) + 1)
	if s.random.IntN(4) > 0 {
		s.rotate()
	}
	for _, r := range s.replicas {
		for number, version := range s.versions {
			if s.now.Sub(version.since) >= s.late || s.random.IntN(50) == 0 {
				s.show(r, number)
			}
		}
	}
	for _, c := range s.callers {
		if s.now.Sub(c.since) >= s.told || s.random.IntN(100) == 0 {
			s.tell(c)
		}
	}
}

// refused returns how many calls would be refused now.
func (s *simulation) refused() int {
	count := 0
	for _, c := range s.callers {
		for _, r := range s.replicas {
			if cluster, ok := Verify(r.Accepted(), c.path, is(c.cluster)); !ok || cluster != c.cluster.NamespacedName {
				count++
			}
		}
	}
	return count
}

// run steps through five rotations and returns how many calls were refused, and how many keys there were.
func run(t *testing.T, seed uint64, late, told time.Duration) (refused, keys int) {
	t.Helper()
	s := newSimulation(t, seed, late, told)
	current := map[string]bool{}
	for end := s.now.Add(5 * (simulatedPeriod + 2*simulatedGrace)); s.now.Before(end); {
		s.step()
		refused += s.refused()
		current[string(s.latest().Data["current"])] = true
	}
	return refused, len(current)
}

// In each moment of a rotation, whatever replica is called accepts the path that the API server was told last: as long as
// replicas see the Secret within the grace, and API servers are told their path within the rest of the period.
func TestARotationLeavesNoGap(t *testing.T) {
	for seed := range uint64(10) {
		refused, keys := run(t, seed, simulatedGrace-longestStep, simulatedPeriod-simulatedGrace-longestStep)
		NewWithT(t).Expect(refused).To(BeZero(), "seed %d", seed)
		NewWithT(t).Expect(keys).To(BeNumerically(">=", 4), "seed %d: there was something to get wrong", seed)
	}
}

// Both limits are needed, and the simulation would notice.
func TestOneLaterThanThatIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name       string
		late, told time.Duration
	}{
		{name: "replicas that see the Secret after the grace", late: 2 * simulatedGrace, told: time.Minute},
		{name: "API servers that are told after the period", late: time.Minute, told: 2 * simulatedPeriod},
	} {
		t.Run(tc.name, func(t *testing.T) {
			total := 0
			for seed := range uint64(2) {
				refused, _ := run(t, seed, tc.late, tc.told)
				total += refused
			}
			NewWithT(t).Expect(total).To(BeNumerically(">", 0))
		})
	}
}
