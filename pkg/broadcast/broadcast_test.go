// SPDX-License-Identifier: Apache-2.0

package broadcast

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestEverySubscriberIsToldOfAChange(t *testing.T) {
	Expect := NewWithT(t).Expect
	b := &Broadcaster{}
	one, other := b.Subscribe(), b.Subscribe()
	Expect(one).NotTo(Receive(), "nothing has changed yet")
	b.Publish()
	Expect(one).To(Receive(HaveField("Object", Not(BeNil()))), "a controller drops an event without an object")
	Expect(other).To(Receive())
	Expect(one).NotTo(Receive(), "once is enough")
}

func TestBusySubscribersDelayNobody(t *testing.T) {
	Expect := NewWithT(t).Expect
	b := &Broadcaster{}
	busy, idle := b.Subscribe(), b.Subscribe()
	for range 3 {
		b.Publish()
		Expect(idle).To(Receive())
	}
	Expect(busy).To(Receive(), "one event stands for all missed changes")
	Expect(busy).NotTo(Receive())
	b.Publish()
	Expect(busy).To(Receive(), "the next change is an event again")
}

func TestNobodyNeedsToListen(t *testing.T) {
	(&Broadcaster{}).Publish() // must not block
}
