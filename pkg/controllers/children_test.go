// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// of returns a write of the scene's child, with this verb.
func (l *loop) of(s *scene, verb string) string {
	return verb + l.kindOf(s.child) + "/" + s.child.GetName()
}

// inherits makes the child inherit, and forgets the write.
func (l *loop) inherits(s *scene) {
	l.t.Helper()
	l.Expect(l.see(s.about)).To(Succeed())
	l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
	l.writes.take()
}

// declaresNothing takes the declaration away from the owner.
func (l *loop) declaresNothing(s *scene) {
	l.t.Helper()
	l.change(s.owner, func() { declare(s.owner) })
}

// A child inherits in one apply by our field manager. The next look makes no API call.
func TestChildrenInherit(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote(l.of(s, "applies "))
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
		l.Expect(managedfields.Recorded(s.child.GetManagedFields())).To(BeTrue())
		l.counted(
			fmt.Sprintf(`resync_writes_total{kind="%s",result="applied"} 1`, s.kind),
			fmt.Sprintf(`inherited_keys_total{action="injected",kind="%s",type="label",writer="resync"} %d`, s.kind, s.labels()),
		)

		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.Expect(l.live.take()).To(BeEmpty())
		l.told()
	})
}

// The loop patches away the entries that an owner no longer declares, at the version that the API server has, and gives them up. It does so
// at once, although a controller of Cluster API observes the owner: Cluster API removes only its own share of such an entry.
func TestChildrenLoseRemovedDeclarations(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.inherits(s)
		l.change(s.child, func() { s.child.SetLabels(with(s.child.GetLabels(), "mine", "yes")) })
		l.lag(s.child)
		l.change(s.child, func() { s.child.SetFinalizers([]string{"another"}) })
		l.change(s.owner, func() { declare(s.owner); observed(s.owner) })
		l.Expect(l.look(s.about)).To(Equal(time.Second), "the cache has another version")
		l.wrote()

		clear(l.stale)
		l.Expect(l.look(s.about)).To(BeZero())
		l.wrote(l.of(s, "patches "))
		raw, err := json.Marshal(l.stored(s.child))
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(string(raw)).To(And(Not(ContainSubstring(`"team"`)), ContainSubstring(`"mine":"yes"`), Not(ContainSubstring(`"heirloom"`))))
		l.counted(fmt.Sprintf(`inherited_keys_total{action="removed",kind="%s",type="label",writer="resync"} %d`, s.kind, s.labels()))
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// The tests of the decision prove which objects are skipped, and why.
func TestSkippedChildrenAreNotWritten(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.inherits(s)
		l.change(s.child, func() { s.child.SetAnnotations(pairs(clusterv1.PausedAnnotation)) })
		l.declaresNothing(s)
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// The loop cleans up its entries in an object if the object, or its Cluster, carries heirloom.dev/ignore=cleanup and is not paused.
func TestLabelCleansUpChildren(t *testing.T) {
	ignore := func(object client.Object) {
		object.SetLabels(with(object.GetLabels(), inherit.IgnoreLabel, inherit.IgnoreAndCleanUp))
	}
	for name, tc := range map[string]struct {
		set     func(child client.Object, cluster *clusterv1.Cluster)
		cleaned bool
	}{
		"itself":      {func(child client.Object, _ *clusterv1.Cluster) { ignore(child) }, true},
		"its Cluster": {func(_ client.Object, cluster *clusterv1.Cluster) { ignore(cluster) }, true},
		"while it is paused": {func(child client.Object, cluster *clusterv1.Cluster) {
			ignore(cluster)
			child.SetAnnotations(pairs(clusterv1.PausedAnnotation))
		}, false},
		"while its Cluster is paused": {func(child client.Object, cluster *clusterv1.Cluster) {
			ignore(child)
			cluster.Spec.Paused = new(true)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				cluster := theCluster()
				l.inherits(s)
				l.change(cluster, func() { l.change(s.child, func() { tc.set(s.child, cluster) }) })
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(managedfields.Recorded(l.stored(s.child).GetManagedFields())).To(Equal(!tc.cleaned))
				if tc.cleaned {
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
		l.inherits(s)
		l.delete(s.owner)
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
		l.delete(s.child)
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.told()
	})
}

func TestFailedReadsAreRetried(t *testing.T) {
	failed := errors.New("the cache is not there")
	each(t, func(l *loop, s *scene) {
		for _, object := range []client.Object{s.about, s.child, s.owner, theCluster()} {
			l.broken = map[string]error{l.kindOf(object): failed}
			l.Expect(l.see(s.about)).To(MatchError(failed), l.kindOf(object))
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
func TestRefusedWritesAreRetriedAndReported(t *testing.T) {
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				refused := func(verb string) {
					l.refuse = tc.err
					if again, err := l.look(s.about); tc.result == "conflict" {
						l.Expect(err).NotTo(HaveOccurred())
						l.Expect(again).To(Equal(time.Second))
					} else {
						l.Expect(err).To(MatchError(ContainSubstring(verb + " the " + l.kindOf(s.child) + ": " + tc.err.Error())))
					}
					l.Expect(l.writes.take()).To(HaveLen(1))
					if tc.tells {
						l.told("Warning InheritanceFailed " + l.of(s, "") + ": Failed to write inherited entries: " + tc.err.Error())
					}
					l.told()
					l.refuse = nil
				}
				refused("applying inherited entries to")
				l.notCounted("inherited_keys_total")
				l.inherits(s)
				l.declaresNothing(s)
				refused("patching inherited entries of")
				l.counted(fmt.Sprintf(`resync_writes_total{kind="%s",result="%s"} 2`, s.kind, tc.result))
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
			})
		})
	}
}

// The loop leaves out an entry that an API server would refuse in the child, and applies the rest. An Event on the child names the field in
// which its owner declares the entry.
func TestInvalidEntriesAreLeftOutAndReported(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.change(s.owner, func() { declare(s.owner, "team=ml", "sentence=not a value") })
		l.inherits(s)
		owner := fmt.Sprintf("%s ns/%s (", l.kindOf(s.owner), s.owner.GetName())
		if l.kindOf(s.owner) == "MachineSet" {
			owner = "MachineDeployment ns/md ("
		}
		for range 2 { // the entry is still left out
			l.Expect(l.events.take()).To(ContainElement(And(HavePrefix("Warning NotInherited "+l.of(s, "")+": "+owner),
				ContainSubstring(`metadata.labels): label "sentence"="not a value": an API server would refuse it`))))
			l.Expect(l.see(s.about)).To(Succeed())
			l.wrote()
		}
	})
}

// Cluster API can remove an entry that the owner no longer declares before our cache has the owner's change. If a child was written later
// than its cached owner, the loop decides with live reads of the owners. If they fail, it writes nothing and tries again.
func TestStaleOwnersRestoreNothing(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.change(s.child, func() { s.child.SetFinalizers([]string{"another"}) })
		l.refuseLive = errors.New("no answer")
		l.Expect(l.see(s.about)).To(MatchError(l.refuseLive))
		l.wrote()

		l.refuseLive = nil
		l.lag(s.owner)
		l.declaresNothing(s)
		l.change(s.child, func() { s.child.SetFinalizers(nil) })
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// observed sets the observed generation of an owner, as its controller in Cluster API does, if its kind has the field.
func observed(owner client.Object) {
	if status := reflect.ValueOf(owner).Elem().FieldByName("Status"); status.IsValid() {
		status.FieldByName("ObservedGeneration").SetInt(1)
	}
}

// For half a minute after a change of the owner, the loop leaves additions that Cluster API's controller of this owner makes to that
// controller. It does not wait if there is no such controller: for a control plane, and for an owner without an observed generation.
func TestAdditionsAreLeftToClusterAPIForAWhile(t *testing.T) {
	for name := range scenes() {
		for _, observes := range []bool{true, false} {
			inUse(t, func(t *testing.T) {
				s := scenes()[name]
				if observes {
					observed(s.owner)
				}
				about := s.child
				objects := append([]client.Object{s.owner, s.child}, s.around...)
				if s.about != nil {
					about, objects = s.about, append(objects, s.about)
				}
				l := newLoop(t, objects...)
				l.change(s.owner, func() { declare(s.owner, "team=web") })
				if !observes || name == "a Machine of a control plane" {
					l.Expect(l.look(about)).To(BeZero(), name)
					l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "web"), name)
					return
				}
				l.Expect(l.look(about)).To(Equal(30*time.Second), name)
				<-time.After(20 * time.Second)
				l.Expect(l.look(about)).To(Equal(10 * time.Second))
				l.change(s.owner, func() { declare(s.owner, "team=ml") })
				l.Expect(l.look(about)).To(Equal(30*time.Second), "the owner has changed again")
				l.wrote()
				<-time.After(30 * time.Second)
				l.Expect(l.look(about)).To(BeZero())
				l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
			})
		}
	}
}
