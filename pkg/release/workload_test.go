// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var key = bytes.Repeat([]byte{7}, webhook.KeySize)

// keys is the Secret of the keys.
func keys(current []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "keys", UID: "keys"}, Data: map[string][]byte{"current": current},
	}
}

// provisionedCluster is a Cluster that has an API server.
func provisionedCluster(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, core, "Cluster", name, `{status: {initialization: {infrastructureProvisioned: true}}}`)
}

// calls is the webhook configuration of a workload cluster, which calls this URL.
func calls(url string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhook.ObjectName, UID: "calls"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: webhook.WebhookName, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url)}}},
	}
}

const url = "https://heirloom.example.com"

// fleet is a management cluster with workload clusters, told by the names of their Clusters.
type fleet struct {
	management *apiServer
	workloads  map[string]*apiServer
}

// run releases with the flags of a Heirloom that workload clusters call.
func (f fleet) run(options Options) *run {
	options.WorkloadWebhookURL, options.WorkloadWebhookKey = url, types.NamespacedName{Namespace: "heirloom-system", Name: "keys"}
	r := releasing(f.management, options)
	r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
		if abroad := f.workloads[cluster.Name]; abroad != nil {
			return abroad, nil
		}
		return nil, errors.New("no route")
	}
	return r
}

// In a workload cluster goes first what admits Nodes, and then what Nodes have inherited.
func TestAWorkloadCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	red := holds(served, ofBoth(), calls(url+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red")))))
	Expect(policy.Ensure(t.Context(), red.others, types.NamespacedName{}, nil, inherit.Policy{})).Error().To(Succeed())
	f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}

	dry := f.run(Options{DryRun: true})
	Expect(dry.Run(t.Context())).To(Succeed())
	Expect(red.written()).To(BeEmpty())
	Expect(f.management.written()).To(BeEmpty())

	r := f.run(Options{})
	Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
	Expect(red.written()).To(Equal([]string{
		"delete MutatingWebhookConfiguration management.heirloom.dev", "delete MutatingAdmissionPolicyBinding nodes.heirloom.dev",
		"delete MutatingAdmissionPolicy nodes.heirloom.dev", "delete ConfigMap nodes.heirloom.dev", "delete Namespace heirloom-nodes",
		"patch Node n", "patch Node n",
	}))
	text, _ := red.stored(t, "v1", "Node", "n")
	Expect(text).To(MatchYAML(releasedNode))
	Expect(r.out.String()).To(And(
		ContainSubstring("mutatingwebhookconfiguration.admissionregistration.k8s.io/management.heirloom.dev deleted in workload cluster ns/red\n"),
		ContainSubstring("namespace/heirloom-nodes deleted in workload cluster ns/red\n"),
		ContainSubstring("node/n released in workload cluster ns/red\n"), ContainSubstring("secret/keys deleted in namespace heirloom-system\n")))
	for line := range strings.Lines(r.out.String()) {
		Expect(dry.out.String()).To(ContainSubstring(strings.TrimSpace(line)+" (dry run)\n"), "a dry run says what happens")
	}
	Expect(f.management.written()).To(Equal([]string{"delete Secret keys"}))

	again := f.run(Options{})
	Expect(again.Run(t.Context())).To(Succeed())
	Expect(again.out.String()).To(BeEmpty(), "a second run changes nothing")
}

// One that cannot be reached is named and holds up nothing. The keys stay until it has been cleaned up, for they prove which
// configuration is ours.
func TestAWorkloadClusterThatCannotBeReached(t *testing.T) {
	Expect := NewWithT(t).Expect
	red, blue := holds(served, ofBoth(), calls("https://old.example.com"+webhook.Path(key, webhook.IdentityOf(provisionedCluster(t, "red"))))), holds(served, ofBoth())
	f := fleet{holds(served, provisionedCluster(t, "red"), provisionedCluster(t, "blue"), teamed(t, core, "Machine", "m"), keys(key)), map[string]*apiServer{"blue": blue}}
	first := f.run(Options{})
	Expect(first.Run(t.Context())).To(MatchError(HaveSuffix("run it again once this is mended:\nworkload cluster ns/red: no route")))
	Expect(f.management.written()).To(Equal([]string{"patch Machine m"}))
	Expect(blue.written()).To(Equal([]string{"patch Node n", "patch Node n"}))

	f.workloads["red"] = red
	second := f.run(Options{})
	Expect(second.Run(t.Context())).To(Succeed())
	Expect(second.out.String()).To(Equal(`mutatingwebhookconfiguration.admissionregistration.k8s.io/management.heirloom.dev deleted in workload cluster ns/red
node/n released in workload cluster ns/red
secret/keys deleted in namespace heirloom-system
`))
}

// Clusters without an API server of their own, or with one that is about to go, are passed over.
func TestClustersThatArePassedOver(t *testing.T) {
	Expect := NewWithT(t).Expect
	going := provisionedCluster(t, "going")
	going.SetFinalizers([]string{"example.com/held"})
	old := object(t, core, "Cluster", "old", `{metadata: {labels: {cluster.x-k8s.io/watch-filter: mine}}, status: {infrastructureReady: true}}`)
	management := holds(served, going, provisionedCluster(t, "own"), object(t, core, "Cluster", "new", `{}`), provisionedCluster(t, "there"), old)
	Expect(management.others.Delete(t.Context(), going)).To(Succeed())
	reached := func(options Options) (clusters []string, progress string) {
		options.ManagementCluster = types.NamespacedName{Namespace: "ns", Name: "own"}
		r := fleet{management: management}.run(options)
		r.Concurrency = 1
		r.Workload = func(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
			clusters = append(clusters, cluster.Name)
			return holds(served), nil
		}
		Expect(r.Run(t.Context())).To(Succeed())
		slices.Sort(clusters)
		return clusters, r.progress.String()
	}
	clusters, progress := reached(Options{})
	Expect(clusters).To(Equal([]string{"old", "there"}))
	Expect(progress).To(And(ContainSubstring("workload cluster ns/going: passed over, it is being deleted\n"),
		ContainSubstring("workload cluster ns/new: passed over, it has never been provisioned\n")))
	clusters, progress = reached(Options{WatchFilter: "mine"})
	Expect(clusters).To(Equal([]string{"old"}))
	Expect(progress).NotTo(ContainSubstring("passed over"), "others' Clusters are nothing to it")
	clusters, _ = reached(Options{Namespace: "other"})
	Expect(clusters).To(BeEmpty())
}

// A configuration that leads to another Heirloom is left, and said to be.
func TestAnotherHeirloomsConfiguration(t *testing.T) {
	Expect := NewWithT(t).Expect
	red := holds(served, calls("https://other.example.com/workload/ns/red/00"))
	f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}
	r := f.run(Options{})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(red.written()).To(BeEmpty())
	Expect(r.progress.String()).To(ContainSubstring("workload cluster ns/red: MutatingWebhookConfiguration management.heirloom.dev stays: it leads to another Heirloom"))
}

func TestWhatAWorkloadClusterRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, request string
		with          error
		problem       string
	}{
		{"an account that may not look for a configuration has made none", "get MutatingWebhookConfiguration", forbidden, ""},
		{"nor a policy", "get MutatingAdmissionPolicyBinding", forbidden, ""},
		{"the configuration cannot be read", "get MutatingWebhookConfiguration", errors.New("no route"), "getting the webhook configuration of the workload cluster: no route"},
		{"the policy cannot be read", "get MutatingAdmissionPolicy", errors.New("no route"), "admitting Nodes by policy: deleting MutatingAdmissionPolicy nodes.heirloom.dev: no route"},
		{"Nodes may not be listed", "list Node", forbidden, `listing Node: any "it" is forbidden`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			red := holds(served, ofBoth())
			red.fail[tc.request] = tc.with
			f := fleet{holds(served, provisionedCluster(t, "red"), keys(key)), map[string]*apiServer{"red": red}}
			err := f.run(Options{}).Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(red.written()).To(Equal([]string{"patch Node n", "patch Node n"}))
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(f.management.written()).To(BeEmpty(), "the keys stay")
		})
	}
}

func TestTheKeys(t *testing.T) {
	for _, tc := range []struct {
		name    string
		secret  *corev1.Secret
		request string
		problem string
		note    string
		writes  []string
	}{
		{name: "go when all is done", secret: keys(key), writes: []string{"delete Secret keys"}},
		{name: "go also where they are of no use", secret: keys([]byte("short")), writes: []string{"delete Secret keys"}, note: "are told by --workload-webhook-url alone\n"},
		{name: "may have gone before"},
		{name: "must be readable", secret: keys(key), request: "get Secret", problem: "reading the keys of workload clusters' webhooks: "},
		{name: "must be deletable", secret: keys(key), request: "delete Secret", problem: "deleting the keys of workload clusters' webhooks: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served)
			if tc.secret != nil {
				management = holds(served, tc.secret)
			}
			management.fail[tc.request] = forbidden
			r := fleet{management: management}.run(Options{})
			err := r.Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			Expect(r.progress.String()).To(ContainSubstring(tc.note))
			Expect(management.written()).To(Equal(tc.writes))
		})
	}
}
