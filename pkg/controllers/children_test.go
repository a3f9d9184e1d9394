// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A child inherits in one apply by our field manager, at the version that the loop has read. The next look makes no API call.
func TestAChildInheritsWhatItsOwnerDeclares(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote(fmt.Sprintf("heirloom applies %s ns/%s@999 %s", l.kindOf(s.child).Kind, s.child.GetName(), s.body))
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
		l.counted(
			fmt.Sprintf(`resync_writes_total{kind="%s",result="applied"} 1`, s.kind),
			fmt.Sprintf(`inherited_keys_total{by="resync",change="injected",kind="%s",what="label"} %d`, s.kind, strings.Count(s.body, "team")),
		)

		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.Expect(l.live.take()).To(BeEmpty())
		l.told()
	})
}

// The loop patches away the entries that an owner no longer declares, at the version that the API server has, and releases them. Entries of
// other managers stay.
func TestAChildLosesWhatItsOwnerNoLongerDeclares(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.change(s.child, func() { s.child.SetLabels(with(s.child.GetLabels(), "mine", "yes")) })
		l.change(s.owner, func() { declare(s.owner) })
		l.writes.take()

		l.lag(s.child)
		l.change(s.child, func() { s.child.SetFinalizers([]string{"another"}) })
		l.Expect(l.look(s.about)).To(Equal(100*time.Millisecond), "the cache has another version")
		clear(l.stale)
		l.refuseLive = errors.New("no answer")
		l.Expect(l.see(s.about)).To(MatchError(l.refuseLive))
		l.refuseLive = nil
		l.wrote()

		l.change(s.owner, func() { declare(s.owner) })
		l.live.take()
		l.Expect(l.see(s.about)).To(Succeed())
		patch := l.writes.take()
		l.Expect(patch).To(HaveLen(1))
		l.Expect(patch[0]).To(HavePrefix(fmt.Sprintf("heirloom patches %s ns/%s@1003 ", l.kindOf(s.child).Kind, s.child.GetName())))
		l.Expect(l.live.take()).To(ConsistOf(l.kindOf(s.child).Kind+"/"+s.child.GetName()), "the cache has only a part of the object")
		raw, err := json.Marshal(l.stored(s.child))
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(string(raw)).To(And(Not(ContainSubstring(`"team"`)), ContainSubstring(`"mine":"yes"`), Not(ContainSubstring(`"heirloom"`))))
		l.counted(fmt.Sprintf(`inherited_keys_total{by="resync",change="removed",kind="%s",what="label"} %d`, s.kind, strings.Count(s.body, "team")))

		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// A child that has all its entries, exactly as one create has left it, becomes ours by a patch that changes no content.
func TestAChildThatWasCopiedIsAdopted(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Labels["team"], m.ManagedFields = "ml", nil
	l := newLoop(t, theCluster(), machineSet("team=ml"), m)
	l.Expect(l.see(m)).To(Succeed())
	l.wrote("heirloom patches Machine ns/m@999")
	l.Expect(l.stored(m).GetManagedFields()).To(ContainElement(And(
		HaveField("Manager", "heirloom"), HaveField("Operation", metav1.ManagedFieldsOperationApply))))
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()
}

// The tests of the decision prove which objects are left alone, and why.
func TestAChildThatIsLeftAloneIsNotWritten(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.writes.take()
		l.change(s.child, func() { s.child.SetAnnotations(with(s.child.GetAnnotations(), clusterv1.PausedAnnotation, "")) })
		l.change(s.owner, func() { declare(s.owner) })
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// The loop releases its entries in an object if the object, or its Cluster, has the opt-out value for a release and is not paused.
func TestAChildThatIsReleased(t *testing.T) {
	set := func(object client.Object) {
		object.SetLabels(with(object.GetLabels(), inherit.IgnoreLabel, inherit.IgnoreAndRelease))
	}
	for name, tc := range map[string]struct {
		set      func(child client.Object, cluster *clusterv1.Cluster)
		released bool
	}{
		"itself":      {func(child client.Object, _ *clusterv1.Cluster) { set(child) }, true},
		"its Cluster": {func(_ client.Object, cluster *clusterv1.Cluster) { set(cluster) }, true},
		"while it is paused": {func(child client.Object, cluster *clusterv1.Cluster) {
			set(cluster)
			child.SetAnnotations(with(child.GetAnnotations(), clusterv1.PausedAnnotation, ""))
		}, false},
		"while its Cluster is paused": {func(child client.Object, cluster *clusterv1.Cluster) {
			set(child)
			cluster.Spec.Paused = new(true)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				cluster := theCluster()
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(managedfields.Recorded(l.stored(s.child).GetManagedFields())).To(BeTrue())
				l.stored(cluster)
				tc.set(s.child, cluster)
				l.Expect(l.server.Update(l.t.Context(), cluster)).To(Succeed())
				l.Expect(l.server.Update(l.t.Context(), s.child)).To(Succeed())
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(managedfields.Recorded(l.stored(s.child).GetManagedFields())).To(Equal(!tc.released))
				if tc.released {
					l.Expect(s.child.GetLabels()).NotTo(HaveKey("team"))
				}
				l.writes.take()
				l.Expect(l.see(s.about)).To(Succeed())
				l.wrote()
			})
		})
	}
}

// Inherited entries stay when the owner is gone. A deleted child needs no write.
func TestALostOwnerTakesNothingAway(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.writes.take()
		for _, lost := range []client.Object{s.owner, s.child} {
			l.delete(lost)
			l.Expect(l.see(s.about)).To(Succeed())
			l.wrote()
			l.told()
			if lost == s.owner {
				l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
			}
		}
	})
}

func TestAReadThatFailsIsTriedAgain(t *testing.T) {
	failed := errors.New("the cache is not there")
	each(t, func(l *loop, s *scene) {
		for _, object := range []client.Object{s.about, s.child, s.owner, theCluster()} {
			kind := l.kindOf(object).Kind
			l.broken[kind] = failed
			l.Expect(l.see(s.about)).To(MatchError(failed), kind)
			delete(l.broken, kind)
		}
		l.wrote()
	})
}

// refusal is an answer of an API server to a write, with the result that is counted and whether an Event is recorded.
type refusal struct {
	err    error
	result string
	tells  bool
}

func refusals() map[string]refusal {
	resource := schema.GroupResource{Resource: "things"}
	return map[string]refusal{
		"it is forbidden":        {apierrors.NewForbidden(resource, "x", errors.New("no rights")), "error", true},
		"it is invalid":          {apierrors.NewBadRequest("no such field"), "error", true},
		"the object has changed": {apierrors.NewConflict(resource, "x", errors.New("changed")), "conflict", false},
		"the object has gone":    {apierrors.NewNotFound(resource, "x"), "error", false},
	}
}

// The loop retries and counts a refused write, and records an Event on the object, except after a conflict, which is no error, or if the
// object is gone.
func TestAWriteThatIsRefused(t *testing.T) {
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				kind, name := l.kindOf(s.child).Kind, s.child.GetName()
				expect := func(times int, verb string) {
					l.refuse = tc.err
					again, err := l.look(s.about)
					if tc.result == "conflict" {
						l.Expect(err).NotTo(HaveOccurred())
						l.Expect(again).To(Equal(time.Second))
					} else {
						l.Expect(err).To(MatchError(tc.err))
						l.Expect(err).To(MatchError(ContainSubstring(verb + " the " + kind + ": ")))
					}
					l.Expect(l.writes.take()).To(HaveLen(1))
					l.counted(fmt.Sprintf(`resync_writes_total{kind="%s",result="%s"} %d`, s.kind, tc.result, times))
					if tc.tells {
						l.told(fmt.Sprintf("Warning InheritanceFailed %s/%s: Failed to write inherited entries: %v", kind, name, tc.err))
					} else {
						l.told()
					}
					l.refuse = nil
				}
				expect(1, "applying inherited entries to")
				l.notCounted("inherited_keys_total")
				l.Expect(l.see(s.about)).To(Succeed())
				l.writes.take()
				l.change(s.owner, func() { declare(s.owner) })
				expect(2, "patching inherited entries of")
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
			})
		})
	}
}

// The loop leaves out an entry that an API server would refuse in the child, for every kind, and applies the rest. An Event on the child
// names the field in which its owner declares the entry.
func TestWhatAnAPIServerWouldRefuseIsLeftOut(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.change(s.owner, func() { declare(s.owner, "team=ml", "sentence=not a value") })
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.writes.take()).To(ConsistOf(HaveSuffix(s.body)))
		owner := fmt.Sprintf("%s ns/%s (", l.kindOf(s.owner).Kind, s.owner.GetName())
		if strings.HasPrefix(owner, "MachineSet") {
			owner = "MachineDeployment ns/md (" // the MachineSet's owner
		}
		for range 2 { // the entry is still left out
			l.Expect(l.events.take()).To(ContainElement(And(
				HavePrefix("Warning NotInherited %s/%s: %s", l.kindOf(s.child).Kind, s.child.GetName(), owner),
				ContainSubstring(`metadata.labels): label "sentence"="not a value": an API server would refuse it`),
			)))
			l.Expect(l.see(s.about)).To(Succeed())
			l.wrote()
		}
	})
}

// Cluster API can remove an entry that the owner no longer declares before our cache has the owner's change. If a child was written later
// than its cached owner, the loop decides with live reads of the owners.
func TestAChildThatHasLostSomethingIsSeenWithLiveOwners(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.lag(s.owner)
		l.change(s.owner, func() { declare(s.owner) })
		l.change(s.child, func() { s.child.SetFinalizers([]string{"another"}) })
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.live.take()).To(ContainElement(l.kindOf(s.owner).Kind + "/" + s.owner.GetName()))
		l.wrote()
	})
}

// If the owners of such a child cannot be read live, the loop writes nothing and tries again: the cache must not decide.
func TestAChildWaitsForItsLiveOwners(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.change(s.child, func() { s.child.SetFinalizers([]string{"another"}) })
		l.refuseLive = errors.New("no answer")
		l.Expect(l.see(s.about)).To(MatchError(l.refuseLive))
		l.wrote()
		l.refuseLive = nil
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.writes.take()).To(HaveLen(1))
	})
}

// observed sets the observed generation of an owner, as its controller in Cluster API does, if its kind has the field.
func observed[T client.Object](owner T) T {
	if status := reflect.ValueOf(owner).Elem().FieldByName("Status"); status.IsValid() {
		status.FieldByName("ObservedGeneration").SetInt(1)
	}
	return owner
}

// For half a minute after a change of the owner, the loop leaves additions that Cluster API's controller of this owner makes to that
// controller. It does not wait if there is no such controller: for a control plane, and for an owner without an observed generation.
func TestAdditionsAreLeftToClusterAPIForAWhile(t *testing.T) {
	inUse(t, func(t *testing.T) {
		for _, s := range scenes() {
			waits := s.name != "a Machine of a control plane"
			for _, hasController := range []bool{true, false} {
				owner := s.owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one
				if hasController {
					observed(owner)
				}
				objects := append([]client.Object{owner, s.child}, s.around...)
				if s.about != s.child {
					objects = append(objects, s.about)
				}
				l := newLoop(t, objects...)
				look := func() time.Duration {
					again, err := l.look(s.about)
					l.Expect(err).NotTo(HaveOccurred())
					return again
				}
				l.change(owner, func() { declare(owner, "team=web") })
				if !waits || !hasController {
					l.Expect(look()).To(BeZero(), s.name)
					l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "web"), s.name)
					continue
				}
				l.Expect(look()).To(Equal(30*time.Second), s.name)
				<-time.After(20 * time.Second)
				l.Expect(look()).To(Equal(10 * time.Second))
				l.change(owner, func() { declare(owner, "team=ml") })
				l.Expect(look()).To(Equal(30*time.Second), "the owner has changed again")
				<-time.After(30*time.Second - time.Millisecond)
				l.wrote()
				<-time.After(look())
				l.Expect(look()).To(BeZero())
				l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
				l.writes.take()
				l.Expect(look()).To(BeZero())
				l.wrote()
			}
		}
	})
}

// Cluster API removes only its own share of an entry that Heirloom owns as well, which no other writer sees. So the loop removes the entry at
// once, in all kinds.
func TestRemovalsDoNotWait(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKey("team"))
		l.change(s.owner, func() { declare(s.owner); observed(s.owner) })
		again, err := l.look(s.about)
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(again).To(BeZero())
		l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
	})
}

// The loop does not wait after its own changes of an owner.
func TestWhatHeirloomHasChangedIsNotWaitedFor(t *testing.T) {
	inUse(t, func(t *testing.T) {
		md, ms, m := machineDeployment("team=ml"), observed(machineSet()), machine("m", "MachineSet/ms")
		l := newLoop(t, theCluster(), md, ms, m)
		l.Expect(l.see(ms)).To(Succeed())
		l.Expect(l.stored(ms).GetManagedFields()).To(ContainElement(HaveField("Time.Time", BeTemporally("~", time.Now(), time.Second))))
		l.Expect(l.look(m)).To(BeZero())
		l.Expect(l.stored(m).GetLabels()).To(HaveKeyWithValue("team", "ml"))
	})
}

// As soon as Cluster API is known to take typed taints, the taints that a Machine declares by annotation become typed, without a write by a
// user. When Cluster API's gate is off, the loop removes its typed taints, also from a Machine that is left alone.
func TestTaintsFollowTheGateOfClusterAPI(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Annotations = map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}
	l := newLoop(t, theCluster(), machineSet(), m)
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()

	l.policy.ClusterAPITaints = inherit.PropagationEnabled
	l.Expect(l.see(m)).To(Succeed())
	l.wrote(`heirloom applies Machine ns/m@999 {"spec":{"taints":[{"effect":"NoSchedule","key":"gpu","propagation":"Always","value":"true"}]}}`)

	l.change(m, func() { m.Annotations[clusterv1.PausedAnnotation] = "" })
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()
	l.policy.ClusterAPITaints = inherit.PropagationDisabled
	l.Expect(l.see(m)).To(Succeed())
	l.wrote("heirloom patches Machine ns/m@1001 remove /spec/taints")
	l.stored(m)
	l.Expect(m.Spec.Taints).To(BeEmpty())
	l.Expect(m.Annotations).To(HaveKey(taint.AlwaysAnnotation))
	l.Expect(l.see(m)).To(Succeed())
	l.wrote()
}

// with returns a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
