// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// leader is a leader with the management cluster that it runs in and one workload cluster.
type leader struct {
	*testing.T
	*Registrar
	rotator              *Rotator
	clock                *clock
	management, workload *apiServer
}

func newLeader(t *testing.T) *leader {
	t.Helper()
	l := &leader{T: t, management: newAPIServer(installedWith(t, newCA(t))), workload: newAPIServer()}
	l.rotator, l.clock = newRotator(l.management)
	l.restart()
	return l
}

// restart forgets all that is in memory.
func (l *leader) restart() {
	l.Registrar = &Registrar{Management: l.management, Installed: "heirloom", BaseURL: base, Keys: &Store{}}
}

// pass lets time pass, takes the step that is due then, and looks at the workload cluster. It returns the path that the
// workload cluster's API server calls now.
func (l *leader) pass(d time.Duration) string {
	l.Helper()
	Expect := NewWithT(l).Expect
	l.clock.now = l.clock.now.Add(d)
	_, err := l.rotator.Rotate(l.Context())
	Expect(err).NotTo(HaveOccurred())
	Expect(l.Keys.Set(stored(l.T, l.management))).To(Succeed())
	Expect(l.Ensure(l.Context(), l.workload, prod)).Error().To(Succeed())
	return strings.TrimPrefix(leadsTo(l.workload.registered(l.T)), base)
}

// accepts reports whether a replica with these keys answers a call of this path.
func accepts(keys *Store, path string) bool {
	cluster, genuine := Verify(keys.Accepted(), path, is(prod))
	return genuine && cluster == prod.NamespacedName
}

// A workload cluster is told a path once for each key. A path that it was told is good until the next rotation begins.
func TestAWorkloadClusterThroughARotation(t *testing.T) {
	Expect := NewWithT(t).Expect
	l, late := newLeader(t), &Store{}
	first := l.pass(0)
	Expect(accepts(l.Keys, first)).To(BeTrue())

	Expect(l.pass(l.rotator.Period)).To(Equal(first), "the next key is there, and not used yet")
	Expect(l.workload.writes).To(Equal([]string{"create"}))
	Expect(late.Set(stored(t, l.management))).To(Succeed())

	second := l.pass(Grace)
	Expect(second).NotTo(Equal(first))
	Expect(accepts(l.Keys, second)).To(BeTrue())
	Expect(accepts(l.Keys, first)).To(BeTrue(), "an API server hears of the new path a moment later")
	Expect(accepts(late, second)).To(BeTrue(), "a replica hears of the step a moment later")

	Expect(l.pass(l.rotator.Period - time.Second)).To(Equal(second))
	Expect(accepts(l.Keys, first)).To(BeTrue())
	Expect(l.pass(time.Second)).To(Equal(second))
	Expect(accepts(l.Keys, first)).To(BeFalse(), "the next rotation has begun")
	Expect(l.workload.writes).To(Equal([]string{"create", "update"}))
}

func TestARestartKeepsKeyAndPath(t *testing.T) {
	Expect := NewWithT(t).Expect
	l := newLeader(t)
	path := l.pass(0)
	l.restart()
	Expect(l.pass(time.Hour)).To(Equal(path))
	Expect(l.management.writes).To(Equal([]string{"create"}))
	Expect(l.workload.writes).To(Equal([]string{"create"}))
}

// A deleted Secret is how a path that has become known is got rid of: also in the middle of a rotation.
func TestADeletedSecretMakesEveryPathInvalid(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []time.Duration
	}{
		{name: "with one key", steps: []time.Duration{0}},
		{name: "with a next key", steps: []time.Duration{0, 720 * time.Hour}},
		{name: "with a previous key", steps: []time.Duration{0, 720 * time.Hour, Grace}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			l := newLeader(t)
			var known []string
			for _, step := range tc.steps {
				known = append(known, l.pass(step))
			}
			for _, key := range l.Keys.Accepted() {
				known = append(known, Path(key, prod))
			}
			Expect(l.management.Delete(t.Context(), stored(t, l.management))).To(Succeed())
			path := l.pass(0)
			Expect(accepts(l.Keys, path)).To(BeTrue())
			for _, stolen := range known {
				Expect(accepts(l.Keys, stolen)).To(BeFalse())
			}
			Expect(l.Keys.Accepted()).To(HaveLen(1))
			Expect(l.Remove(t.Context(), l.workload, prod)).Error().To(Succeed())
			Expect(l.workload.registered(t)).To(BeNil())
		})
	}
}

// Between the two steps that it takes to change a Secret, somebody may delete it. Nothing of it comes back.
func TestASecretThatIsDeletedMeanwhileStaysDeleted(t *testing.T) {
	Expect := NewWithT(t).Expect
	l := newLeader(t)
	l.pass(0)
	before := stored(t, l.management).Data["current"]
	l.clock.now = l.clock.now.Add(l.rotator.Period)
	l.management.before["update"] = func() { Expect(l.management.Delete(t.Context(), stored(t, l.management))).To(Succeed()) }
	_, err := l.rotator.Rotate(t.Context())
	Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	l.pass(0)
	Expect(stored(t, l.management).Data).To(And(HaveLen(1), HaveKeyWithValue("current", Not(Equal(before)))))
}

// A clock that was ahead has made a key. Once it is right again, that key is used for a period from then on.
func TestAClockThatWasAheadDoesNotKeepAKeyForever(t *testing.T) {
	Expect := NewWithT(t).Expect
	l := newLeader(t)
	path := l.pass(10 * 365 * 24 * time.Hour)
	Expect(l.pass(-10 * 365 * 24 * time.Hour)).To(Equal(path))
	Expect(l.pass(l.rotator.Period - time.Second)).To(Equal(path))
	Expect(stored(t, l.management).Data).To(HaveLen(1))
	Expect(l.pass(time.Second)).To(Equal(path))
	Expect(stored(t, l.management).Data).To(HaveKey("next"))
	Expect(l.pass(Grace)).NotTo(Equal(path))
}
