// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func notListed(reason error) error {
	return &providers.NotListedError{Kind: "FakeMachine.infrastructure.cluster.x-k8s.io", Since: time.Now(), Reason: reason}
}

// A kind that cannot be listed keeps what is of this kind waiting, and tells why on the Cluster. The Machine and its other
// external object get theirs. It is no failure, which would be tried again at once.
func TestAKindThatIsNotListedCostsOnlyItsOwn(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Spec.InfrastructureRef = withExternal("FakeMachine").Spec.InfrastructureRef
	m.Spec.Bootstrap = withExternal("FakeConfig").Spec.Bootstrap
	l := newLoop(t, theCluster(), machineSet("team=ml"), m, externalObject("FakeMachine"), externalObject("FakeConfig"))
	l.broken.set("FakeMachine", notListed(apierrors.NewInternalError(errors.New("the object of another namespace"))))
	result, err := l.reconcile(m)
	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(result.RequeueAfter).To(BeNumerically(">=", time.Minute))
	l.wrote("heirloom applies Machine ns/m@999 "+top, "heirloom applies FakeConfig ns/beside@999 "+top)
	l.told("Warning ProviderKindNotListed Cluster/c: What depends on a FakeMachine.infrastructure.cluster.x-k8s.io inherits nothing for now, " +
		"because the API server cannot list this kind (InternalError); Heirloom's log says why")

	l.broken.clear("FakeMachine")
	l.Expect(l.see(m)).To(Succeed())
	l.wrote("heirloom applies FakeMachine ns/beside@999 " + top)
}

// Nor does it keep the Machine waiting for longer than that is left to Cluster API.
func TestAKindThatIsNotListedDelaysNoOtherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machine("m", "MachineSet/ms")
		m.Spec.InfrastructureRef = withExternal("FakeMachine").Spec.InfrastructureRef
		l := newLoop(t, theCluster(), handled(machineSet("team=ml"), 3, 2), m, externalObject("FakeMachine"))
		l.broken.set("FakeMachine", notListed(apierrors.NewInternalError(errors.New("no conversion"))))
		l.Expect(l.againAt(m, "machine")).To(Equal(10 * time.Second))
		<-time.After(10 * time.Second)
		l.Expect(l.againAt(m, "machine")).To(BeNumerically(">=", time.Minute))
		l.wrote("heirloom applies Machine ns/m@999 " + top)
	})
}

// As long as nobody knows why, there is nothing to tell, and it is looked at again soon.
func TestAKindThatIsBeingListedIsNoEvent(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		if !s.provider {
			return
		}
		kind := l.kindOf(s.child).Kind
		if kind == "Machine" {
			kind = l.kindOf(s.owner).Kind
		}
		l.broken.set(kind, notListed(nil))
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.told()
		l.broken.clear(kind)
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.writes.take()).To(HaveLen(1))
	})
}

// What else is wrong is tried again as ever.
func TestAFailureBesideAKindThatIsNotListedIsOne(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Spec.InfrastructureRef = withExternal("FakeMachine").Spec.InfrastructureRef
	l := newLoop(t, theCluster(), machineSet("team=ml"), m)
	l.broken.set("FakeMachine", notListed(nil))
	l.refuse = errors.New("no rights")
	_, err := l.reconcile(m)
	l.Expect(err).To(MatchError(l.refuse))
}
