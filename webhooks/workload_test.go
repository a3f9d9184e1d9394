// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var (
	red  = types.NamespacedName{Namespace: "ns", Name: "red"}
	blue = types.NamespacedName{Namespace: "other", Name: "blue"}
)

// identity returns the identity of a Cluster in the fleet: its UID is its name.
func identity(cluster types.NamespacedName) workloadwebhook.Identity {
	return workloadwebhook.Identity{NamespacedName: cluster, UID: types.UID(cluster.Name)}
}

// abroad holds two Clusters with Machines. Both Clusters have a Node node-1, with the same address.
var abroad = fleet{
	clusters: map[string]string{"ns/red": "{}", "other/blue": "{}"},
	machines: map[string]string{
		"ns/m-red":      "{metadata: {labels: {node.cluster.x-k8s.io/color: red}}, spec: {clusterName: red, taints: [{key: red, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}, addresses: [{type: InternalIP, address: 10.0.0.1}]}}",
		"other/m-blue":  "{metadata: {labels: {node.cluster.x-k8s.io/color: blue}}, spec: {clusterName: blue, taints: [{key: blue, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}, addresses: [{type: InternalIP, address: 10.0.0.1}]}}",
		"other/m-blue2": "{metadata: {labels: {node.cluster.x-k8s.io/color: navy}}, spec: {clusterName: blue, providerID: 'acme://2'}, status: {nodeRef: {name: node-2}, addresses: [{type: InternalIP, address: 10.0.0.2}]}}",
	},
}

func newKey(b byte) []byte { return bytes.Repeat([]byte{b}, workloadwebhook.KeySize) }

// workload returns the webhook for workload clusters, with key 1.
func workload(s server) http.Handler {
	return newWorkload(s.Dependencies, func(context.Context) []byte { return newKey(1) })
}

// workloadServer is like workload, but on the webhook server.
func workloadServer(s server) http.Handler {
	webhookServer := webhook.NewServer(webhook.Options{})
	RegisterWorkload(webhookServer, s.Dependencies, func(context.Context) []byte { return newKey(1) })
	return webhookServer.WebhookMux()
}

// denied returns the number of denied requests.
func (s server) denied(t *testing.T) int {
	t.Helper()
	return len(s.countedIn(t, "heirloom_workload_admission_rejected_total"))
}

// bare is a request about Node node-1.
var bare = write{kind: "Node", object: bareNode}

const bareNode = "{metadata: {name: node-1}, spec: {}, status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}}"

func TestEachWorkloadClusterGetsItsOwn(t *testing.T) {
	for _, handler := range []func(server) http.Handler{workload, workloadServer} {
		Expect, s := NewWithT(t).Expect, newServer(t, abroad, nil, inherit.Policy{})
		for cluster, color := range map[types.NamespacedName]string{red: "red", blue: "blue"} {
			// An API server adds its timeout.
			response := ask(t, handler(s), workloadwebhook.Path(newKey(1), identity(cluster))+"?timeout=2s", bare.review(t)).Response
			Expect(response.Allowed).To(BeTrue())
			Expect(string(response.Patch)).To(And(
				ContainSubstring(`"node.cluster.x-k8s.io/color":"`+color+`"}`),
				ContainSubstring(`"path":"/spec/taints","value":[{"key":"`+color+`","effect":"NoSchedule"}]`),
			))
		}
		Expect(s.denied(t)).To(BeZero())
		Expect(s.counted(t)).To(And(HaveLen(2), HaveEach("Node CREATE injected")))
	}
}

func TestAWorkloadClusterIsAnsweredUntouched(t *testing.T) {
	resource := func(group, resource, sub string) func(*admissionv1.AdmissionRequest) {
		return func(req *admissionv1.AdmissionRequest) {
			req.Resource, req.SubResource = metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, sub
		}
	}
	withRed := func(cluster string) fleet {
		return abroad.with(func(f *fleet) { f.clusters = map[string]string{"ns/red": cluster} })
	}
	for _, tc := range []struct {
		name    string
		cache   fleet
		request write
		change  func(*admissionv1.AdmissionRequest)
		failed  bool
	}{
		{name: "about a Node that is a Machine of another Cluster, by name", request: write{kind: "Node", object: "{metadata: {name: node-2}, spec: {}}"}},
		{name: "about a Node that is a Machine of another Cluster, by providerID", request: write{kind: "Node", object: "{metadata: {name: x}, spec: {providerID: 'acme://2'}}"}},
		{name: "about a Node that is a Machine of another Cluster, by address", request: write{kind: "Node", object: "{metadata: {name: x}, status: {addresses: [{type: InternalIP, address: 10.0.0.2}]}}"}},
		{name: "about the status of a Node", request: bare, change: resource("", "nodes", "status")},
		{name: "about a Pod", request: bare, change: resource("", "pods", "")},
		{name: "about another group's nodes", request: bare, change: resource("metrics.k8s.io", "nodes", "")},
		{name: "about a kubelet's update", request: write{kind: "Node", object: bareNode, old: bareNode, user: "system:node:node-1"}},
		{name: "whose Cluster carries heirloom.dev/ignore", cache: withRed("{metadata: {labels: {heirloom.dev/ignore: ''}}}"), request: bare},
		{name: "while the cache fails, and is not told why", cache: listing(func() error { return errors.New("no route to the management cluster") }), request: bare, failed: true},
		{name: "while a handler panics, and is not told why", cache: listing(func() error { panic("another tenant's secret") }), request: bare, failed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			if tc.cache.clusters == nil {
				tc.cache = abroad
			}
			if tc.change == nil {
				tc.change = func(*admissionv1.AdmissionRequest) {}
			}
			s := newServer(t, tc.cache, nil, inherit.Policy{})
			response := ask(t, workload(s), workloadwebhook.Path(newKey(1), identity(red)), tc.request.review(t, tc.change)).Response
			Expect(response.Allowed).To(BeTrue())
			Expect(response.Patch).To(BeEmpty())
			outcome, warnings := "unmatched", BeEmpty()
			if tc.failed {
				outcome, warnings = "failed", HaveExactElements("heirloom: the object inherited nothing with this write")
			}
			Expect(response.Warnings).To(warnings)
			Expect(s.counted(t)).To(HaveExactElements(HaveSuffix(" " + outcome)))
			Expect(s.denied(t)).To(BeZero())
		})
	}
}

// listing returns a fleet in which this happens to lists.
func listing(happens func() error) fleet {
	return abroad.with(func(f *fleet) {
		f.asked = func(_ context.Context, what string) error {
			if what == "list" {
				return happens()
			}
			return nil
		}
	})
}

// A replica that does not know a Cluster yet, or cannot read its cache, denies as if there were no Cluster. It does not read from the
// management cluster's API server: otherwise any client could cause these reads.
func TestNobodyIsKnownByTheAPIServerAlone(t *testing.T) {
	for name, cache := range map[string]fleet{"a new Cluster": {}, "a cache that fails": broken} {
		Expect := NewWithT(t).Expect
		live, reads := abroad.counting()
		s := newServer(t, cache, live.reader(t), inherit.Policy{})
		for i, path := range []string{workloadwebhook.Path(newKey(1), identity(red)), "/workload/ns/red/" + strings.Repeat("0", 64)} {
			Expect(post(workload(s), path, bare.review(t)).Code).To(Equal(http.StatusForbidden), name)
			Expect(s.denied(t)).To(BeEquivalentTo(i + 1))
		}
		Expect(reads).To(BeEmpty(), name)
	}
}

// A workload cluster's request causes no live reads of objects that are not cached, although a live read would find the owner.
func TestWorkloadClustersCauseNoLiveReadsOfOwners(t *testing.T) {
	Expect := NewWithT(t).Expect
	owned := abroad.with(func(f *fleet) {
		f.machines = map[string]string{"ns/m": "{metadata: {" + bySet + "}, spec: {clusterName: c, taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}}}"}
		f.clusters = ordinary.clusters
	})
	s := newServer(t, owned, owned.with(func(f *fleet) {
		f.sets = map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c, template: {spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}}}"}
	}).reader(t), inherit.Policy{})
	request := write{
		kind:   "Node",
		object: "{metadata: {name: node-1, annotations: {cluster.x-k8s.io/taints-from-machine: 'gpu:NoSchedule'}}, spec: {}}",
		old:    "{metadata: {name: node-1}, spec: {taints: [{key: gpu, effect: NoSchedule}]}}",
	}
	path := workloadwebhook.Path(newKey(1), identity(types.NamespacedName{Namespace: "ns", Name: "c"}))
	Expect(ask(t, workload(s), path, request.review(t)).Response.Warnings).To(HaveExactElements(HaveSuffix("to change it, edit Machine ns/m (spec.taints)")))
	review := ask(t, mux(t, s), NodesPath, request.review(t))
	Expect(review.Response.Warnings).To(HaveExactElements(HaveSuffix("to change it, edit MachineDeployment ns/md (spec.template.spec.taints)")), "the management cluster's webhook still reads live")
}

// knock is a request by a client without access.
type knock struct{ name, method, path string }

// denied returns requests that all get the same answer. The second list has paths that are not clean, which the webhook server itself
// redirects, whatever they name.
func denied() (clean, unclean []knock) {
	genuine := workloadwebhook.Path(newKey(1), identity(red))
	mac := genuine[strings.LastIndex(genuine, "/")+1:]
	forged := strings.Repeat("0", len(mac))
	for name, path := range map[string]string{
		"a forged HMAC":                              "/workload/ns/red/" + forged,
		"the HMAC of no key":                         workloadwebhook.Path(nil, identity(red)),
		"another Cluster's HMAC":                     "/workload/other/blue/" + mac,
		"a Cluster that is not there":                workloadwebhook.Path(newKey(1), identity(types.NamespacedName{Namespace: "ns", Name: "gone"})),
		"that of a Cluster before, of the same name": workloadwebhook.Path(newKey(1), workloadwebhook.Identity{NamespacedName: red, UID: "before"}),
		"that of no UID":                             workloadwebhook.Path(newKey(1), workloadwebhook.Identity{NamespacedName: red}),
		"a forged HMAC, and no such Cluster":         "/workload/ns/gone/" + forged,
		"half a byte":                                genuine[:len(genuine)-1],
		"an HMAC in capitals":                        "/workload/ns/red/" + strings.ToUpper(mac),
		"no HMAC and no slash":                       "/workload/ns/red",
		"one more segment":                           genuine + "/nodes",
		"an escaped slash":                           "/workload/ns%2Fred/" + mac,
		"escaped dots":                               "/workload/ns/blue/%2e%2e/red/" + mac,
		"the HMAC as a query":                        "/workload/ns/red?" + mac,
	} {
		clean = append(clean, knock{name, http.MethodPost, path})
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "BREW"} {
		clean = append(clean, knock{"the right path", method, genuine}, knock{"a wrong path", method, "/workload/ns/red/" + forged})
	}
	return clean, []knock{
		{"dots", http.MethodPost, "/workload/ns/blue/../red/" + mac},
		{"dots that lead out", http.MethodPost, "/workload/../mutate/nodes"},
		{"a dot", http.MethodPost, "/workload/./ns/red/" + mac},
		{"an empty segment", http.MethodPost, "/workload//ns/red/" + mac},
		{"no slash at all", http.MethodPost, "/workload"},
	}
}

// The answer to callers without access shows neither whether the Cluster exists nor the cause.
func TestUnauthorizedCallersGetOneAnswer(t *testing.T) {
	clean, unclean := denied()
	want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
	knocks := func(handler http.Handler, k knock) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(k.method, k.path, bytes.NewReader(bare.review(t))))
		return answer
	}
	s := newServer(t, abroad, nil, inherit.Policy{})
	handler, onServer, denials := workload(s), workloadServer(s), 0
	deny := func(handler http.Handler, k knock) {
		Expect, got := NewWithT(t).Expect, knocks(handler, k)
		denials++
		Expect([]any{got.Code, got.Header(), got.Body.String()}).To(Equal([]any{http.StatusForbidden, want, "Forbidden\n"}), "%s: %s %s", k.name, k.method, k.path)
		Expect(s.denied(t)).To(Equal(denials), "%s: it is counted", k.name)
	}
	for _, k := range clean {
		deny(handler, k)
		deny(onServer, k)
	}
	for _, k := range unclean {
		deny(handler, k)
		NewWithT(t).Expect(knocks(onServer, k).Code).To(Equal(http.StatusTemporaryRedirect), "the webhook server does not serve %s", k.name)
	}
	NewWithT(t).Expect(s.counted(t)).To(BeEmpty(), "no decider has seen a request")
}
