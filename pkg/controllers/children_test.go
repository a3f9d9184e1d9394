// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// What a child inherits comes in one apply by our field manager, for the version that was seen. Then there is nothing more
// to do. No API call is made beside that.
func TestAChildInheritsWhatItsOwnerDeclares(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote(fmt.Sprintf("heirloom applies %s ns/%s@999 %s", l.kindOf(s.child).Kind, s.child.GetName(), s.body))
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
		l.counted(
			fmt.Sprintf(`resync_writes_total{kind="%s",reason="ahead",result="applied"} 1`, s.kind),
			fmt.Sprintf(`inherited_keys_total{by="resync",change="injected",kind="%s",what="label"} %d`, s.kind, strings.Count(s.body, "team")),
		)

		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.Expect(l.live.take()).To(BeEmpty())
		l.told()
	})
}

// What an owner no longer declares is patched away, for the version that the API server has, and then is ours no more.
// What others have brought stays.
func TestAChildLosesWhatItsOwnerNoLongerDeclares(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.change(s.child, func() { s.child.SetLabels(with(s.child.GetLabels(), "mine", "yes")) })
		l.change(s.owner, func() { declare(s.owner) })
		l.writes.take()

		l.Expect(l.see(s.about)).To(Succeed())
		patch := l.writes.take()
		l.Expect(patch).To(HaveLen(1))
		l.Expect(patch[0]).To(HavePrefix(fmt.Sprintf("heirloom patches %s ns/%s@1001 ", l.kindOf(s.child).Kind, s.child.GetName())))
		l.Expect(l.live.take()).To(ConsistOf(l.kindOf(s.child).Kind+"/"+s.child.GetName()), "the cache has but a part of it")
		l.Expect(text(l, s.child)).To(And(Not(ContainSubstring(`"team"`)), ContainSubstring(`"mine":"yes"`), Not(ContainSubstring(`"heirloom"`))))
		l.counted(fmt.Sprintf(`inherited_keys_total{by="resync",change="removed",kind="%s",what="label"} %d`, s.kind, strings.Count(s.body, "team")))

		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// A child that has all that it should, exactly as one create has left it, becomes ours by a patch that changes no content.
func TestAChildThatWasCopiedIsAdopted(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := machine("m", "MachineSet/ms")
	m.Labels["team"], m.ManagedFields = "ml", nil
	l := newLoop(t, theCluster(), machineSet("team=ml"), m)
	Expect(l.see(m)).To(Succeed())
	l.wrote("heirloom patches Machine ns/m@999")
	Expect(l.stored(m).GetManagedFields()).To(ContainElement(And(
		HaveField("Manager", "heirloom"), HaveField("Operation", metav1.ManagedFieldsOperationApply))))
	Expect(l.see(m)).To(Succeed())
	l.wrote()
}

// text is all of an object as the API server has it, with its managed fields.
func text(l *loop, object client.Object) string {
	raw, err := json.Marshal(l.stored(object))
	l.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// with returns a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func TestAChildThatIsLeftAloneIsNotWritten(t *testing.T) {
	annotate := func(object client.Object, key string) { object.SetAnnotations(with(object.GetAnnotations(), key, "")) }
	label := func(object client.Object, key string) { object.SetLabels(with(object.GetLabels(), key, "")) }
	for _, tc := range []struct {
		name  string
		leave func(l *loop, s *scene, cluster *clusterv1.Cluster)
	}{
		{"it is paused", func(_ *loop, s *scene, _ *clusterv1.Cluster) { annotate(s.child, clusterv1.PausedAnnotation) }},
		{"it is opted out", func(_ *loop, s *scene, _ *clusterv1.Cluster) { label(s.child, inherit.IgnoreLabel) }},
		{"its Cluster is paused", func(_ *loop, _ *scene, cluster *clusterv1.Cluster) { cluster.Spec.Paused = new(true) }},
		{"its Cluster is paused by annotation", func(_ *loop, _ *scene, cluster *clusterv1.Cluster) { annotate(cluster, clusterv1.PausedAnnotation) }},
		{"its Cluster is opted out", func(_ *loop, _ *scene, cluster *clusterv1.Cluster) { label(cluster, inherit.IgnoreLabel) }},
		{"another instance reconciles it", func(l *loop, _ *scene, _ *clusterv1.Cluster) { l.policy.WatchFilter = "another" }},
		{"it is being deleted", func(l *loop, s *scene, _ *clusterv1.Cluster) {
			s.child.SetFinalizers([]string{"provider/finalizer"})
			l.Expect(l.server.Update(l.t.Context(), s.child)).To(Succeed())
			l.Expect(l.server.Delete(l.t.Context(), s.child)).To(Succeed())
			l.stored(s.child)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				cluster := theCluster()
				l.stored(cluster)
				tc.leave(l, s, cluster)
				l.Expect(l.server.Update(l.t.Context(), cluster)).To(Succeed())
				l.Expect(l.server.Update(l.t.Context(), s.child)).To(Succeed())
				l.Expect(l.see(s.about)).To(Succeed())
				l.wrote()
			})
		})
	}
}

// What an owner has brought stays when the owner is gone, when there is another one under its name, and after a restore
// without owner references.
func TestALostOwnerTakesNothingAway(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(l *loop, s *scene)
	}{
		{"it is gone", func(l *loop, s *scene) { l.Expect(l.server.Delete(l.t.Context(), s.owner)).To(Succeed()) }},
		{"another object has its name", func(l *loop, s *scene) {
			l.change(s.child, func() {
				references := s.child.GetOwnerReferences()
				for i := range references {
					references[i].UID = "another"
				}
				s.child.SetOwnerReferences(references)
			})
			if len(s.child.GetOwnerReferences()) > 0 { // an owner by topology has no reference, and is the owner still
				l.change(s.owner, func() { declare(s.owner) })
			}
		}},
		{"nothing refers to it", func(l *loop, s *scene) {
			l.change(s.child, func() {
				labels := s.child.GetLabels()
				delete(labels, clusterv1.ClusterTopologyOwnedLabel)
				s.child.SetLabels(labels)
				s.child.SetOwnerReferences(nil)
			})
			l.change(s.owner, func() { declare(s.owner) })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				l.Expect(l.see(s.about)).To(Succeed())
				l.writes.take()
				tc.lose(l, s)
				l.Expect(l.see(s.about)).To(Succeed())
				l.wrote()
				l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", "ml"))
			})
		})
	}
}

func TestAChildThatIsGoneNeedsNothing(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.server.Delete(l.t.Context(), s.child)).To(Succeed())
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.told()
	})
}

func TestAReadThatFailsIsTriedAgain(t *testing.T) {
	failed := errors.New("the cache is not there")
	each(t, func(l *loop, s *scene) {
		for _, object := range []client.Object{s.about, s.child, s.owner, theCluster()} {
			kind := l.kindOf(object).Kind
			l.broken.set(kind, failed)
			l.Expect(l.see(s.about)).To(MatchError(failed), kind)
			l.broken.clear(kind)
		}
		l.wrote()
	})
}
