// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKeysComeBackFromTheirSecret(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys Keys
	}{
		{name: "a first key", keys: Keys{current: key(1), currentSince: start}},
		{name: "a next key, with a time that is no full second", keys: Keys{current: key(1), currentSince: start, next: key(2), nextSince: start.Add(1234567 * time.Nanosecond)}},
		{name: "a previous key", keys: Keys{current: key(2), currentSince: start, previous: key(1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			secret := &corev1.Secret{}
			tc.keys.put(secret)
			Expect(keysIn(secret)).To(Equal(tc.keys))

			// What was there before goes, what is somebody else's stays.
			full := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}},
				Data:       map[string][]byte{"theirs": []byte("c")},
			}
			Keys{current: key(7), next: key(8), previous: key(9), currentSince: start, nextSince: start}.put(full)
			tc.keys.put(full)
			Expect(keysIn(full)).To(Equal(tc.keys))
			Expect(full.Labels).To(HaveKeyWithValue("team", "a"))
			Expect(full.Annotations).To(HaveKeyWithValue("note", "b"))
			Expect(full.Data).To(HaveKeyWithValue("theirs", []byte("c")))
		})
	}
}

func TestATimeThatCannotBeReadIsNotKnown(t *testing.T) {
	secret := secretWith(map[string][]byte{"current": key(1)})
	secret.Annotations = map[string]string{currentSinceAnnotation: "yesterday"}
	NewWithT(t).Expect(keysIn(secret)).To(Equal(Keys{current: key(1)}))
}

func TestBrokenKeysDoNotReplaceGoodOnes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		data     map[string][]byte
		problems []string
	}{
		{name: "no keys", problems: []string{`it has no "current"`}},
		{name: "only a next key", data: map[string][]byte{"next": key(2)}, problems: []string{`it has no "current"`}},
		{name: "an empty key", data: map[string][]byte{"current": {}}, problems: []string{`its "current" has 0 bytes instead of 32`}},
		{name: "a short key", data: map[string][]byte{"current": []byte("hunter2")}, problems: []string{`its "current" has 7 bytes instead of 32`}},
		{name: "a long key", data: map[string][]byte{"current": append(key(2), 0)}, problems: []string{`its "current" has 33 bytes instead of 32`}},
		{name: "a good key beside two short ones", data: map[string][]byte{"current": key(2), "next": []byte("hunter2"), "previous": {}}, problems: []string{`its "next" has 7 bytes`, `its "previous" has 0 bytes`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			store := storeWith(t, map[string][]byte{"current": key(1), "previous": key(0)})
			err := store.Set(secretWith(tc.data))
			Expect(err).To(MatchError(ContainSubstring("the Secret heirloom-system/keys has no usable keys")))
			for _, problem := range tc.problems {
				Expect(err).To(MatchError(ContainSubstring(problem)))
			}
			Expect(err).NotTo(MatchError(ContainSubstring("hunter2")), "an error goes to a log, and a key does not")
			Expect(store.Current()).To(Equal(key(1)))
			Expect(store.Accepted()).To(ConsistOf(key(1), key(0)))
		})
	}
}

func TestAStoreWithoutKeysAcceptsNothing(t *testing.T) {
	store := &Store{}
	NewWithT(t).Expect(store.Current()).To(BeNil())
	NewWithT(t).Expect(store.Accepted()).To(BeEmpty())
}

// Registrations are made anew when there is another key to make them with, and not each time that the Secret changes.
func TestAStoreTellsOfAnotherCurrentKey(t *testing.T) {
	Expect := NewWithT(t).Expect
	store := &Store{}
	changes := store.Subscribe()
	for _, step := range []struct {
		data  map[string][]byte
		tells bool
	}{
		{data: map[string][]byte{"current": key(1)}, tells: true},
		{data: map[string][]byte{"current": key(1)}},
		{data: map[string][]byte{"current": key(1), "next": key(2)}},
		{data: nil},
		{data: map[string][]byte{"current": key(2), "previous": key(1)}, tells: true},
	} {
		_ = store.Set(secretWith(step.data)) // one of them is broken
		if step.tells {
			Expect(changes).To(Receive(), "%v", step.data)
		}
		Expect(changes).NotTo(Receive(), "%v", step.data)
	}
}

// Informers share their objects: what becomes of one later must not change the keys.
func TestAStoreKeepsItsOwnCopy(t *testing.T) {
	secret := secretWith(map[string][]byte{"current": key(1)})
	store := &Store{}
	NewWithT(t).Expect(store.Set(secret)).To(Succeed())
	secret.Data["current"][0] = 99
	NewWithT(t).Expect(store.Current()).To(Equal(key(1)))
}
