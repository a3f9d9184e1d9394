// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var key = bytes.Repeat([]byte{7}, webhook.KeySize)

// keys returns the Secret of the key.
func keys(key []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "keys", UID: "keys"}, Data: map[string][]byte{"key": key},
	}
}

// provisionedCluster returns a Cluster with an API server.
func provisionedCluster(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, core, "Cluster", name, `{status: {initialization: {infrastructureProvisioned: true}}}`)
}

// ownerOf returns the owner of the policy that a Heirloom made for a Cluster.
func ownerOf(installed, cluster string) string {
	identity := webhook.Identity{NamespacedName: types.NamespacedName{Namespace: "ns", Name: cluster}, UID: types.UID(cluster)}
	return workload.ByPolicy{Installed: installed}.Owner(identity)
}

// calls returns the webhook configuration of a workload cluster that calls this URL.
func calls(url string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhook.ObjectName, UID: "calls"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: webhook.WebhookName, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url)}}},
	}
}

const url = "https://heirloom.example.com"

// fleet is a management cluster with workload clusters, by the names of their Clusters.
type fleet struct {
	management *apiServer
	workloads  map[string]*apiServer
}

// run cleans up with the flags of a Heirloom that workload clusters call.
func (f fleet) run(options Options) *run {
	r := cleaning(f.management, options)
	r.Config.WorkloadWebhookURL, r.Config.WorkloadWebhookKeyName = url, types.NamespacedName{Namespace: "heirloom-system", Name: "keys"}
	r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
		if abroad := f.workloads[cluster.Name]; abroad != nil {
			return abroad, nil
		}
		return nil, errors.New("no route")
	}
	return r
}

// In a workload cluster, the admission of Nodes is removed first, and then the inherited entries of Nodes.
func TestAWorkloadCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	red := holds(served, ofBoth(), calls(url+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red")))))
	owner := ownerOf("heirloom", "red")
	Expect(policy.Ensure(t.Context(), red.others, owner, nil, inherit.Policy{})).Error().To(Succeed())
	f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}

	dry := f.run(dryRun)
	Expect(dry.Run(t.Context())).To(Succeed())
	Expect(red.written()).To(BeEmpty())
	Expect(f.management.written()).To(BeEmpty())

	r := f.run(Options{})
	Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
	Expect(red.written()).To(Equal([]string{
		"delete MutatingWebhookConfiguration management.heirloom.dev", "delete MutatingAdmissionPolicyBinding nodes.heirloom.dev",
		"delete MutatingAdmissionPolicy nodes.heirloom.dev", "delete ConfigMap nodes.heirloom.dev",
		"patch Node n", "patch Node n",
	}))
	text, _ := red.stored(t, "v1", "Node", "n")
	Expect(text).To(MatchYAML(cleanNode))
	Expect(r.out.String()).To(And(
		ContainSubstring("mutatingwebhookconfiguration.admissionregistration.k8s.io/management.heirloom.dev deleted in workload cluster ns/red\n"),
		ContainSubstring("configmap/nodes.heirloom.dev deleted in namespace kube-system in workload cluster ns/red\n"),
		ContainSubstring("node/n cleaned up in workload cluster ns/red\n"), ContainSubstring("secret/keys deleted in namespace heirloom-system\n")))
	for line := range strings.Lines(r.out.String()) {
		Expect(dry.out.String()).To(ContainSubstring(strings.TrimSpace(line)+" (dry run)\n"), "a dry run says what happens")
	}
	Expect(f.management.written()).To(Equal([]string{"delete Secret keys"}))

	again := f.run(Options{})
	Expect(again.Run(t.Context())).To(Succeed())
	Expect(again.out.String()).To(BeEmpty(), "a second run changes nothing")
}

// The error names a workload cluster that cannot be reached. Such a cluster holds up nothing.
func TestUnreachableWorkloadClusterInACleanup(t *testing.T) {
	Expect := NewWithT(t).Expect
	red, blue := holds(served, ofBoth(), calls(url+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red"))))), holds(served, ofBoth())
	f := fleet{holds(served, provisionedCluster(t, "red"), provisionedCluster(t, "blue"), teamed(t, core, "Machine", "m"), keys(key)), map[string]*apiServer{"blue": blue}}
	first := f.run(Options{})
	Expect(first.Run(t.Context())).To(MatchError(HaveSuffix("fix these errors, and run it again:\nworkload cluster ns/red: no route")))
	Expect(f.management.written()).To(Equal([]string{"patch Machine m", "delete Secret keys"}))
	Expect(blue.written()).To(Equal([]string{"patch Node n", "patch Node n"}))

	f.workloads["red"] = red
	second := f.run(Options{})
	Expect(second.Run(t.Context())).To(Succeed())
	Expect(second.out.String()).To(Equal(`mutatingwebhookconfiguration.admissionregistration.k8s.io/management.heirloom.dev deleted in workload cluster ns/red
node/n cleaned up in workload cluster ns/red
`))
}

// Clusters without their own API server, or with an API server that is about to be deleted, are skipped.
func TestSkippedClustersInACleanup(t *testing.T) {
	Expect := NewWithT(t).Expect
	going, labeled := provisionedCluster(t, "going"), provisionedCluster(t, "labeled")
	going.SetFinalizers([]string{"example.com/held"})
	labeled.SetLabels(map[string]string{"cluster.x-k8s.io/watch-filter": "mine"})
	management := holds(served, going, provisionedCluster(t, "own"), object(t, core, "Cluster", "new", `{}`), provisionedCluster(t, "there"), labeled)
	Expect(management.others.Delete(t.Context(), going)).To(Succeed())
	reached := func(namespace, watchFilter string) (clusters []string, progress string) {
		r := fleet{management: management}.run(Options{}).within(namespace, watchFilter)
		r.Config.ManagementClusterKey = types.NamespacedName{Namespace: "ns", Name: "own"}
		var mu sync.Mutex
		r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
			mu.Lock()
			defer mu.Unlock()
			clusters = append(clusters, cluster.Name)
			return holds(served), nil
		}
		Expect(r.Run(t.Context())).To(Succeed())
		slices.Sort(clusters)
		return clusters, r.progress.String()
	}
	clusters, progress := reached("", "")
	Expect(clusters).To(Equal([]string{"labeled", "there"}))
	Expect(progress).To(And(ContainSubstring("workload cluster ns/going: skipped, it is being deleted\n"),
		ContainSubstring("workload cluster ns/new: skipped, it has never been provisioned\n")))
	clusters, progress = reached("", "mine")
	Expect(clusters).To(Equal([]string{"labeled"}))
	Expect(progress).NotTo(ContainSubstring("skipped"), "other Heirlooms' Clusters are skipped")
	clusters, _ = reached("other", "")
	Expect(clusters).To(BeEmpty())
}

// If Heirloom skipped all workload clusters, so does a cleanup.
func TestCleanupWithoutWorkloadClusters(t *testing.T) {
	r := fleet{management: holds(served, provisionedCluster(t, "red"))}.run(Options{})
	r.Config.WorkloadClusters, r.Workload = false, nil // a connection to a workload cluster would panic
	NewWithT(t).Expect(r.Run(t.Context())).To(Succeed())
	NewWithT(t).Expect(r.progress.String()).To(ContainSubstring("workload clusters: skipped, because of --workload-clusters=false"))
}

// The admission of another Heirloom stays, and the output reports it.
func TestAnotherHeirloomsConfiguration(t *testing.T) {
	Expect := NewWithT(t).Expect
	red := holds(served, calls("https://other.example.com/workload/ns/red/00"))
	Expect(policy.Ensure(t.Context(), red.others, ownerOf("other", "red"), nil, inherit.Policy{})).Error().To(Succeed())
	f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}
	r := f.run(Options{})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(red.written()).To(BeEmpty())
	Expect(r.progress.String()).To(ContainSubstring("workload cluster ns/red: MutatingWebhookConfiguration management.heirloom.dev stays: it points to another Heirloom"))
	Expect(r.progress.String()).To(ContainSubstring("workload cluster ns/red: its objects nodes.heirloom.dev stay: the MutatingAdmissionPolicy belongs to another Heirloom"))
}

// An account that may not read objects for admission has created none.
func TestForbiddenWorkloadCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	red := holds(served, ofBoth())
	red.fail["get MutatingWebhookConfiguration"], red.fail["get MutatingAdmissionPolicyBinding"] = forbidden, forbidden
	f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}
	Expect(f.run(Options{}).Run(t.Context())).To(Succeed())
	Expect(red.written()).To(Equal([]string{"patch Node n", "patch Node n"}))
}

func TestUndeletableKeyIsReported(t *testing.T) {
	for _, request := range []string{"get Secret", "delete Secret"} {
		management := holds(served, keys(key))
		management.fail[request] = forbidden
		err := fleet{management: management}.run(Options{}).Run(t.Context())
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("deleting the Secret of the key of workload clusters' webhooks: ")), request)
	}
}

// withdrawing holds the options of an uninstall.
var withdrawing = Options{OnlyWorkloadClusters: true, Stop: true}

// events returns the Events on Clusters, as "<reason> <cluster>: <note>".
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

// After the leader has stopped, the admission of Nodes is removed from every workload cluster that answers. No other object changes, also
// in the management cluster.
func TestOnlyWorkloadClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		red := holds(served, ofBoth(), calls(url+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red")))))
		Expect(policy.Ensure(t.Context(), red.others, ownerOf("heirloom", "red"), nil, inherit.Policy{})).Error().To(Succeed())
		f := fleet{
			holds(served, provisionedCluster(t, "red"), keys(key), teamed(t, core, "Machine", "m"), ofBoth(), deployment(), heldBy("pod", 0)),
			map[string]*apiServer{"red": red},
		}
		dry := withdrawing
		dry.DryRun = true
		Expect(f.run(dry).Run(t.Context())).To(Succeed())
		Expect(append(red.written(), f.management.written()...)).To(BeEmpty())

		begun := time.Now()
		var withdrawn time.Duration
		red.before["delete ConfigMap"] = func() { withdrawn = time.Since(begun) }
		r := f.run(withdrawing)
		Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
		Expect(red.written()).To(Equal([]string{
			"delete MutatingWebhookConfiguration management.heirloom.dev", "delete MutatingAdmissionPolicyBinding nodes.heirloom.dev",
			"delete MutatingAdmissionPolicy nodes.heirloom.dev", "delete ConfigMap nodes.heirloom.dev",
		}))
		Expect(withdrawn).To(Equal(20*time.Second), "the loop would set up admission again")
		Expect(f.management.written()).To(Equal([]string{"scale Deployment heirloom"}))
		Expect(f.management.events(t)).To(BeEmpty())
		Expect(r.out.String()).To(ContainSubstring("mutatingadmissionpolicy.admissionregistration.k8s.io/nodes.heirloom.dev deleted in workload cluster ns/red\n"))
	})
}

// warning is a client of an API server that returns a warning with every answer.
type warning struct{ client.Client }

func (w warning) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	ctrl.LoggerFrom(ctx).Info("beware")
	return w.Client.Get(ctx, key, object, options...)
}

// Warnings of a workload cluster are not logged: they may contain any text.
func TestWarningsOfAWorkloadClusterAreNotLogged(t *testing.T) {
	Expect := NewWithT(t).Expect
	var logged []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	red := warning{holds(served, ofBoth())}
	r := fleet{management: holds(served, provisionedCluster(t, "red"))}.run(Options{})
	r.Workload = func(context.Context, types.NamespacedName) (client.Client, error) { return red, nil }
	Expect(r.Run(ctx)).To(Succeed())
	_, _, err := Node(ctx, red, red, "n", Mode{})
	Expect(err).NotTo(HaveOccurred())
	Expect(logged).To(BeEmpty())
}

// The error names a workload cluster that does not answer, and says what to do. Such a cluster holds up neither the others nor the
// uninstall. Only the user of the command sees the answer of a workload cluster's server. The Event on the Cluster says that the server is
// no API server.
func TestHangingWorkloadCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		blue, green, grey := holds(served), holds(served), holds(served)
		for name, there := range map[string]*apiServer{"blue": blue, "green": green} {
			Expect(policy.Ensure(t.Context(), there.others, ownerOf("heirloom", name), nil, inherit.Policy{})).Error().To(Succeed())
		}
		green.fail["delete MutatingAdmissionPolicy"] = apierrors.NewBadRequest("no way " + strings.Repeat("é", 1000))
		grey.fail["get MutatingWebhookConfiguration"] = errors.New("Object 'Kind' is missing in 'secret'")
		f := fleet{holds(served, keys(key)), map[string]*apiServer{"blue": blue, "green": green, "grey": grey}}
		for _, name := range []string{"red", "blue", "green", "grey"} {
			Expect(f.management.others.Create(t.Context(), provisionedCluster(t, name))).To(Succeed())
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
		Expect(took).To(Equal(15*time.Second), "five for the loop to stop, and ten for the cluster")
		Expect(blue.written()).To(ContainElement("delete ConfigMap nodes.heirloom.dev"))
		const left = "objects that admit Nodes could not be deleted. To delete them by hand, with the kubeconfig of the workload cluster: " +
			"kubectl delete --ignore-not-found mutatingwebhookconfiguration/management.heirloom.dev configmap/nodes.heirloom.dev --namespace kube-system; " +
			"kubectl delete --ignore-not-found mutatingadmissionpolicybinding/nodes.heirloom.dev mutatingadmissionpolicy/nodes.heirloom.dev. The reason: "
		Expect(r.progress.String()).To(And(
			ContainSubstring("workload cluster ns/red: "+left+"context deadline exceeded\n"), ContainSubstring("workload cluster ns/green: "+left+"deleting MutatingAdmissionPolicy nodes.heirloom.dev: no way"),
			ContainSubstring("is missing in 'secret'")))
		Expect(f.management.events(t)).To(ConsistOf(
			"WorkloadAdmissionLeft red: "+left+"context deadline exceeded", "WorkloadAdmissionLeft grey: "+left+"it does not answer like an API server",
			And(HavePrefix("WorkloadAdmissionLeft green: "+left), HaveSuffix("éé…"), WithTransform(func(s string) int { return len(s) }, BeNumerically("<", 1060)))))
	})
}

// A hundred workload clusters are handled at a time: even a fleet that does not answer, not even to discovery, which has no context, ends
// within the five minutes of Helm's hook. Workload clusters that answer do not wait for the others.
func TestManyHangingWorkloadClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, over := NewWithT(t).Expect, make(chan struct{})
		defer close(over)
		management, honest := holds(served, provisionedCluster(t, "honest"), keys(key)), holds(served)
		Expect(policy.Ensure(t.Context(), honest.others, ownerOf("heirloom", "honest"), nil, inherit.Policy{})).Error().To(Succeed())
		const many = 250
		for i := range many {
			Expect(management.others.Create(t.Context(), provisionedCluster(t, fmt.Sprint("a-tarpit-", i)))).To(Succeed())
		}
		management.fail["create Event"] = forbidden
		r := fleet{management: management}.run(withdrawing)
		r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
			if cluster.Name == "honest" {
				return honest, nil
			}
			<-over
			return nil, context.DeadlineExceeded
		}
		begun := time.Now()
		var withdrawn time.Duration
		honest.before["delete ConfigMap"] = func() { withdrawn = time.Since(begun) }
		Expect(r.Run(t.Context())).To(Succeed())
		Expect(time.Since(begun)).To(Equal(35*time.Second), "five for the loop to stop, and ten for each hundred")
		Expect(withdrawn).To(And(BeNumerically(">", 5*time.Second), BeNumerically("<=", 11*time.Second)))
		Expect(strings.Count(r.progress.String(), "could not be deleted")).To(Equal(many))
		Expect(r.progress.String()).To(ContainSubstring("workload cluster ns/a-tarpit-7: no Event was written: "))
	})
}

// endless is an API server with an endless list of Nodes, each with entries of Heirloom. It refuses to read a Node, with a long message.
type endless struct {
	client.Client
	pages int
}

func (e *endless) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes, ok := list.(*corev1.NodeList)
	if !ok {
		return e.Client.List(ctx, list, options...)
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.pages++; e.pages < 2_000 {
		nodes.Continue = "more"
	}
	nodes.Items = []corev1.Node{*ofBoth()}
	return nil
}

func (e *endless) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, ok := object.(*corev1.Node); ok {
		return errors.New(strings.Repeat("no way ", 10_000))
	}
	return e.Client.Get(ctx, key, object, options...)
}

// A cleanup gives up on a workload cluster with an endless list of Nodes, and names it. It keeps little of it in memory.
func TestAWorkloadClusterWithNodesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		blue, red := holds(served, ofBoth()), &endless{Client: holds(served)}
		r := fleet{management: holds(served, provisionedCluster(t, "red"), provisionedCluster(t, "blue"))}.run(Options{})
		r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
			return map[string]client.Client{"blue": blue, "red": red}[cluster.Name], nil
		}
		begun := time.Now()
		err := r.Run(t.Context())
		Expect(time.Since(begun)).To(Equal(5 * time.Minute))
		Expect(err).To(MatchError(And(ContainSubstring("listing Node: context deadline exceeded in workload cluster ns/red"),
			ContainSubstring("Node in workload cluster ns/red /n: no way"), MatchRegexp(`Node in workload cluster ns/red: and \d+ more`))))
		Expect(len(err.Error())).To(BeNumerically("<", 30_000))
		Expect(blue.written()).To(Equal([]string{"patch Node n", "patch Node n"}))
	})
}
