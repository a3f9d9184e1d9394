// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// withdrawing are the options of an uninstall.
var withdrawing = Options{OnlyWorkloadClusters: true, PassOverUnreachable: true, TakeLease: true, DeleteWebhookConfigurations: true}

// events are those that somebody reads about Clusters, as "<reason> <cluster>: <note>".
func (s *apiServer) events(t *testing.T) []string {
	t.Helper()
	list := &eventsv1.EventList{}
	NewWithT(t).Expect(s.others.List(t.Context(), list)).To(Succeed())
	var told []string
	for _, e := range list.Items {
		told = append(told, fmt.Sprintf("%s %s: %s", e.Reason, e.Regarding.Name, e.Note))
	}
	return told
}

// What admits Nodes is taken away in every workload cluster that answers, once the leader has stopped. Nothing else is
// touched, also in the management cluster.
func TestOnlyWorkloadClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		red := holds(served, ofBoth(), calls(url+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red")))))
		Expect(policy.Ensure(t.Context(), red.others, types.NamespacedName{}, nil, inherit.Policy{})).Error().To(Succeed())
		f := fleet{
			holds(served, provisionedCluster(t, "red"), keys(key), teamed(t, core, "Machine", "m"), ofBoth(), heldBy("pod", 0)),
			map[string]*apiServer{"red": red},
		}
		dry := withdrawing
		dry.DryRun = true
		r := f.run(dry)
		Expect(r.Run(t.Context())).To(Succeed())
		Expect(append(red.written(), f.management.written()...)).To(BeEmpty())

		begun := time.Now()
		var withdrawn time.Duration
		red.before["delete Namespace"] = func() { withdrawn = time.Since(begun) }
		r = f.run(withdrawing)
		Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
		Expect(red.written()).To(Equal([]string{
			"delete MutatingWebhookConfiguration management.heirloom.dev", "delete MutatingAdmissionPolicyBinding nodes.heirloom.dev",
			"delete MutatingAdmissionPolicy nodes.heirloom.dev", "delete ConfigMap nodes.heirloom.dev", "delete Namespace heirloom-nodes",
		}))
		Expect(withdrawn).To(Equal(15*time.Second), "the loop would set it up anew")
		Expect(f.management.written()).To(HaveEach("update Lease leader"))
		Expect(f.management.lease(t).HolderIdentity).To(HaveValue(Equal("heirloom-release")))
		Expect(f.management.events(t)).To(BeEmpty())
		Expect(r.out.String()).To(ContainSubstring("mutatingadmissionpolicy.admissionregistration.k8s.io/nodes.heirloom.dev deleted in workload cluster ns/red\n"))
	})
}

// Where there is no workload cluster, nobody has to stop.
func TestWithoutWorkloadClustersTheLeaderGoesOn(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, object(t, core, "Cluster", "new", `{}`), heldBy("pod", 0))
	r := fleet{management: management}.run(withdrawing)
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
	Expect(r.progress.String()).To(Equal("workload cluster ns/new: passed over, it has never been provisioned\n"))
}

// One that does not answer is named, with what to do, and holds up neither the others nor the uninstall.
func TestAWorkloadClusterThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		blue, green := holds(served), holds(served)
		for _, there := range []*apiServer{blue, green} {
			Expect(policy.Ensure(t.Context(), there.others, types.NamespacedName{}, nil, inherit.Policy{})).Error().To(Succeed())
		}
		green.fail["delete MutatingAdmissionPolicy"] = errors.New("no way " + strings.Repeat("é", 1000))
		f := fleet{
			holds(served, provisionedCluster(t, "red"), provisionedCluster(t, "blue"), provisionedCluster(t, "green"), keys(key)),
			map[string]*apiServer{"blue": blue, "green": green},
		}
		run := func(options Options) (*run, time.Duration, error) {
			r, begun := f.run(options), time.Now()
			reach := r.Workload
			r.Workload = func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
				if cluster.Name == "red" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return reach(ctx, cluster)
			}
			err := r.Run(t.Context())
			return r, time.Since(begun), err
		}
		r, took, err := run(withdrawing)
		Expect(err).NotTo(HaveOccurred())
		Expect(took).To(Equal(10 * time.Second))
		Expect(blue.written()).To(ContainElement("delete Namespace heirloom-nodes"))
		const left = "what admits Nodes there could not be taken away, and stays. By hand, with its kubeconfig: " +
			"kubectl delete --ignore-not-found mutatingwebhookconfiguration/management.heirloom.dev namespace/heirloom-nodes; " +
			"kubectl delete --ignore-not-found mutatingadmissionpolicybinding/nodes.heirloom.dev mutatingadmissionpolicy/nodes.heirloom.dev. The reason: "
		Expect(r.progress.String()).To(And(
			ContainSubstring("workload cluster ns/red: "+left+"context deadline exceeded\n"), ContainSubstring("workload cluster ns/green: "+left+"admitting Nodes by policy: ")))
		Expect(f.management.events(t)).To(ConsistOf(
			"WorkloadAdmissionLeft red: "+left+"context deadline exceeded",
			And(HavePrefix("WorkloadAdmissionLeft green: "+left), HaveSuffix("éé …"), WithTransform(func(s string) int { return len(s) }, BeNumerically("<", 1060)))))

		strict := withdrawing
		strict.PassOverUnreachable = false
		_, _, err = run(strict)
		Expect(err).To(MatchError(And(ContainSubstring("workload cluster ns/red: context deadline exceeded"), ContainSubstring("workload cluster ns/green: "))))
	})
}

// All together have a bound as well: a user who uninstalls does not wait for ever.
func TestManyWorkloadClustersThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		management := holds(served, keys(key))
		const many = 100
		for i := range many {
			Expect(management.others.Create(t.Context(), provisionedCluster(t, fmt.Sprint("c", i)))).To(Succeed())
		}
		management.fail["create Event"] = forbidden
		r := fleet{management: management}.run(withdrawing)
		r.Workload = func(ctx context.Context, _ types.NamespacedName) (client.Client, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begun := time.Now()
		Expect(r.Run(t.Context())).To(Succeed())
		Expect(time.Since(begun)).To(Equal(2 * time.Minute))
		Expect(strings.Count(r.progress.String(), "could not be taken away")).To(Equal(many))
		Expect(r.progress.String()).To(ContainSubstring("workload cluster ns/c7: there is no Event about that: "))
	})
}

// What the management cluster does not answer is an error in any case.
func TestOnlyWorkloadClustersThatCannotBeFound(t *testing.T) {
	for _, request := range []string{"list Cluster", "get Lease", "get Secret"} {
		t.Run(request, func(t *testing.T) {
			management := holds(served, provisionedCluster(t, "red"), keys(key))
			management.fail[request] = forbidden
			NewWithT(t).Expect(fleet{management: management}.run(withdrawing).Run(t.Context())).To(MatchError(ContainSubstring("forbidden")))
		})
	}
}
