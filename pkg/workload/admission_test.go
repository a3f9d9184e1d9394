// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var cluster = webhook.Identity{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "c"}, UID: "c"}

// answer is a way that answers so.
type answer struct {
	changed bool
	err     error
	missing string
}

func (a *answer) Ensure(context.Context, client.Client, webhook.Identity) (bool, error) {
	return a.changed, a.err
}

func (a *answer) Remove(context.Context, client.Client, webhook.Identity) (bool, error) {
	return a.changed, a.err
}

func (a *answer) Missing(client.Client) (string, error)    { return a.missing, nil }
func (a *answer) Try(context.Context, client.Client) error { return nil }

// did is what was done, as "<what> <way>".
func did(result workload.Result) []string {
	var all []string
	for _, outcome := range result.Outcomes {
		all = append(all, string(outcome.Did)+" "+outcome.Way)
	}
	return all
}

func TestEnsureSaysWhatItDid(t *testing.T) {
	broken := errors.New("broken")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no rights"))
	for _, tc := range []struct {
		name, way       string
		policy, webhook answer
		did             []string
		fails           error
	}{
		{name: "nothing, where all is there already", way: "policy"},
		{name: "one is set up", way: "policy", policy: answer{changed: true}, did: []string{"Registered policy"}},
		{name: "the other is taken away", way: "policy", webhook: answer{changed: true}, did: []string{"Removed webhook"}},
		{name: "all are taken away", way: "none", policy: answer{changed: true}, webhook: answer{changed: true}, did: []string{"Removed webhook", "Removed policy"}},
		{name: "all are taken away, the first with an error", way: "none", policy: answer{changed: true}, webhook: answer{err: broken}, did: []string{"Failed webhook", "Removed policy"}, fails: broken},
		{name: "it does not belong to this Heirloom", way: "policy", webhook: answer{err: webhook.ErrForeign}, did: []string{"Foreign webhook"}},
		{name: "there is no such way", way: "magic", webhook: answer{changed: true}, did: []string{"Unknown magic", "Removed webhook"}},
		{name: "it is not served", way: "policy", policy: answer{err: &meta.NoKindMatchError{}}, did: []string{"NotServed policy"}},
		{name: "there is no room for all Machines", way: "policy", policy: answer{changed: true, err: &policy.NoRoomError{Machines: 3}}, did: []string{"NoRoom policy", "Registered policy"}},
		{name: "it fails", way: "policy", policy: answer{err: broken}, did: []string{"Failed policy"}, fails: broken},
		{name: "it is refused", way: "policy", policy: answer{err: forbidden}, did: []string{"Failed policy"}, fails: forbidden},
		{name: "one fails, and the other stays", way: "webhook", webhook: answer{err: broken}, policy: answer{changed: true}, did: []string{"Failed webhook"}, fails: broken},
		{name: "one is refused, and the other stays", way: "policy", policy: answer{err: forbidden}, webhook: answer{changed: true}, did: []string{"Failed policy"}, fails: forbidden},
		{name: "one fails after it was set up, and the other stays", way: "policy", policy: answer{changed: true, err: broken}, webhook: answer{changed: true}, did: []string{"Failed policy"}, fails: broken},
		{name: "the connection is lost", way: "policy", policy: answer{err: clustercache.ErrClusterNotConnected}, fails: clustercache.ErrClusterNotConnected},
		{name: "the best way is taken", way: "auto", policy: answer{changed: true}, did: []string{"Registered policy"}},
		{name: "the next one is taken", way: "auto", policy: answer{missing: "no policies"}, webhook: answer{changed: true}, did: []string{"Registered webhook"}},
		{name: "the next one is taken after a refusal", way: "auto", policy: answer{err: forbidden}, did: []string{"FellBack webhook"}},
		{name: "there is none", way: "auto", policy: answer{err: forbidden}, webhook: answer{missing: "no webhooks"}, did: []string{"FellBack none"}},
		{name: "the best way fails", way: "auto", policy: answer{err: broken}, webhook: answer{changed: true}, did: []string{"Failed policy"}, fails: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			a := &workload.Admission{Ways: map[string]workload.Way{"policy": &tc.policy, "webhook": &tc.webhook}}
			result, err := a.Ensure(t.Context(), nil, cluster, tc.way)
			Expect(did(result)).To(Equal(tc.did))
			if tc.fails == nil {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(tc.fails))
			}
		})
	}
}

// The way before stays until API servers have heard of the new one, however often it is looked at.
func TestTheHandoverTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		policies, webhooks := &answer{changed: true}, &answer{changed: true}
		a := &workload.Admission{Ways: map[string]workload.Way{"policy": policies, "webhook": webhooks}}
		result, err := a.Ensure(t.Context(), nil, cluster, "policy")
		Expect(err).NotTo(HaveOccurred())
		Expect(did(result)).To(Equal([]string{"Registered policy"}))
		Expect(result.Again).To(Equal(10 * time.Second))
		policies.changed = false
		<-time.After(9 * time.Second)
		result, err = a.Ensure(t.Context(), nil, cluster, "policy")
		Expect(err).NotTo(HaveOccurred())
		Expect(result).To(Equal(workload.Result{Again: time.Second}))
		<-time.After(result.Again)
		result, err = a.Ensure(t.Context(), nil, cluster, "policy")
		Expect(err).NotTo(HaveOccurred())
		Expect(did(result)).To(Equal([]string{"Removed webhook"}))
		Expect(result.Again).To(BeZero())
	})
}

// Machines are followed where there is a policy, or may be one.
func TestMachinesAreFollowedForPolicies(t *testing.T) {
	Expect := NewWithT(t).Expect
	object := &metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	policies := &answer{}
	a := &workload.Admission{Default: "auto", Ways: map[string]workload.Way{"policy": policies, "webhook": &answer{}}}
	Expect(a.FollowsMachines(object)).To(BeTrue(), "nobody knows yet")
	Expect(a.Ensure(t.Context(), nil, cluster, "auto")).Error().To(Succeed())
	Expect(a.FollowsMachines(object)).To(BeTrue())
	policies.missing = "no policies"
	Expect(a.Ensure(t.Context(), nil, cluster, "auto")).Error().To(Succeed())
	Expect(a.FollowsMachines(object)).To(BeFalse())
	a.Forget(cluster.NamespacedName)
	Expect(a.FollowsMachines(object)).To(BeTrue(), "another of this name is not known")
	object.Labels = map[string]string{workload.AdmissionLabel: "none"}
	Expect(a.FollowsMachines(object)).To(BeFalse())
	object.Labels[workload.AdmissionLabel] = "policy"
	Expect(a.FollowsMachines(object)).To(BeTrue())
}
