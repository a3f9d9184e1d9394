// SPDX-License-Identifier: Apache-2.0

// Package equal compares the API server in memory with a real kube-apiserver: both get the same requests, and must give the same answers.
package equal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// script is testdata/script.yaml.
type script struct {
	// Watches are open during the script, and LateWatches are opened at the end, after the history has expired.
	Watches, LateWatches []string
	Steps                []step
}

// step is a request of the script.
type step struct {
	Name string
	// User is a name from users; empty: an administrator.
	User string
	// Do is the method and the path; a path without a leading slash begins with a name from resources.
	Do string
	// As is the format of the body, a name from formats; empty: the object itself.
	As string
	// Body is YAML. $rv(x) and $uid(x) are the values in the last answer about an object with name x, $first(x) is its first
	// resourceVersion; shorthands has the rest.
	Body string
	// Code is the expected status code; zero: success.
	Code int
	// Noop says that nothing may be written to the store.
	Noop bool
	// Later delays the request until the next second, in which a manager's time would differ.
	Later bool
	// Differs says why the answers must differ.
	Differs string
	// Hook is the name of a webhook configuration that this step creates, and Webhooks are its webhooks.
	Hook     string
	Webhooks []string
}

// last is the name of the last objects that the script creates: a watch is complete when it has sent its last object.
const last = "zz-last"

var shorthands = strings.NewReplacer(
	"$Machine", "apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine", "$Node", "apiVersion: v1, kind: Node",
	"$Thing", "apiVersion: example.com/v1, kind: Thing", "$ConfigMap", "apiVersion: v1, kind: ConfigMap",
	"$required", "clusterName: c, bootstrap: {dataSecretName: s}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: FakeMachine, name: m}",
)

// readScript reads the script.
func readScript(t *testing.T) script {
	t.Helper()
	text, err := os.ReadFile("testdata/script.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var s script
	NewWithT(t).Expect(yaml.UnmarshalStrict(text, &s)).To(Succeed())
	for i, of := range s.Steps {
		if of.Hook != "" {
			s.Steps[i] = of.configuration()
		}
		s.Steps[i].Body = shorthands.Replace(s.Steps[i].Body)
	}
	return s
}

var (
	users = map[string][]string{
		"": {"admin", "system:masters"}, "node-a": {"system:node:node-a", "system:nodes"}, "node-b": {"system:node:node-b", "system:nodes"},
	}
	formats = map[string]string{
		"": "application/json", "json": "application/json-patch+json", "merge": "application/merge-patch+json",
		"strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
	}
	resources = map[string]string{ //nolint:gosec // G101: these are paths, including the path of Secrets
		"clusters": "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/", "machines": "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/",
		"machinesets": "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/", "fakemachines": "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/default/",
		"things": "/apis/example.com/v1/namespaces/default/", "configmaps": "/api/v1/namespaces/default/", "secrets": "/api/v1/namespaces/default/",
		"events": "/api/v1/namespaces/default/", "nodes": "/api/v1/", "namespaces": "/api/v1/",
		"leases":                        "/apis/coordination.k8s.io/v1/namespaces/default/",
		"customresourcedefinitions":     "/apis/apiextensions.k8s.io/v1/",
		"mutatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1/", "mutatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1/",
		"mutatingadmissionpolicybindings": "/apis/admissionregistration.k8s.io/v1/",
	}
	variable = regexp.MustCompile(`\$(rv|uid|first)\(([^)]+)\)`)
)

// side is one of the two API servers.
type side struct {
	t *testing.T
	*WithT
	connect func(user string, groups ...string) (*rest.Config, error)
	clients map[string]*http.Client
	host    string
	hooks   *hooks
	expire  func() // makes a watch from the first resourceVersion impossible
	// known has the values of variables in bodies, by variable, such as "$uid(x)".
	known map[string]string
	normaliser
}

// answer is the result of a request.
type answer struct {
	Code     int
	Body     any
	Warnings []string
	Reviews  []any // the requests that webhooks have received meanwhile
}

func (s *side) client(user string) *http.Client {
	if s.clients[user] == nil {
		config, err := s.connect(users[user][0], users[user][1:]...)
		s.Expect(err).NotTo(HaveOccurred())
		s.host = config.Host
		s.clients[user], err = rest.HTTPClientFor(config)
		s.Expect(err).NotTo(HaveOccurred())
	}
	return s.clients[user]
}

// send sends a request, and returns the answer with an unread body.
func (s *side) send(ctx context.Context, do step) *http.Response {
	method, path, _ := strings.Cut(do.Do, " ")
	if !strings.HasPrefix(path, "/") {
		resource := path[:strings.IndexAny(path+"/", "/?")]
		s.Expect(resources).To(HaveKey(resource))
		path = resources[resource] + path
	}
	body, err := yaml.YAMLToJSON([]byte(variable.ReplaceAllStringFunc(do.Body, func(name string) string {
		if s.known[name] == "" {
			s.t.Errorf("%s: %s is not known", do.Name, name)
		}
		return s.known[name]
	})))
	s.Expect(err).NotTo(HaveOccurred(), do.Name)
	c := s.client(do.User)
	request, err := http.NewRequestWithContext(ctx, method, s.host+path, strings.NewReader(s.hooks.addresses(string(body))))
	s.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", formats[do.As])
	request.Header.Set("User-Agent", "tester/v1")
	request.Header.Set("Accept", "application/json")
	if strings.Contains(path, "partial") {
		request.Header.Set("Accept", "application/json;as=PartialObjectMetadata"+map[bool]string{true: "List"}[strings.Contains(path, "partial=List")]+";g=meta.k8s.io;v=v1")
	}
	response, err := c.Do(request)
	s.Expect(err).NotTo(HaveOccurred(), do.Name)
	return response
}

func (s *side) do(ctx context.Context, do step) answer {
	if do.Later {
		<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	}
	response := s.send(ctx, do)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	s.Expect(err).NotTo(HaveOccurred(), do.Name)
	var body map[string]any
	if err := json.Unmarshal(content, &body); err != nil {
		body = map[string]any{"text": string(content)}
	}
	metadata, _ := body["metadata"].(map[string]any)
	if name := fmt.Sprint(metadata["name"]); metadata["uid"] != nil {
		rv := fmt.Sprint(metadata["resourceVersion"])
		if do.Noop && s.known["$rv("+name+")"] != rv {
			s.t.Errorf("%s: has been stored", do.Name)
		}
		s.known["$rv("+name+")"], s.known["$uid("+name+")"] = rv, fmt.Sprint(metadata["uid"])
		if s.known["$first("+name+")"] == "" {
			s.known["$first("+name+")"] = rv
		}
	}
	reviews := s.normals(s.hooks.take())
	return answer{Code: response.StatusCode, Body: s.normal(body), Warnings: response.Header["Warning"], Reviews: reviews}
}

// recording has all answers and events of one side.
type recording struct {
	answers []answer
	events  [][]any // by watch
}

func (s *side) run(ctx context.Context, of script) recording {
	var r recording
	for _, resource := range slices.Sorted(maps.Keys(resources)) { // a real API server starts their caches on demand
		s.Eventually(func() int {
			response := s.send(ctx, step{Name: "first " + resource, Do: "GET " + resource})
			_ = response.Body.Close()
			return response.StatusCode
		}, "30s", "50ms").Should(Equal(http.StatusOK))
	}
	var opened []*bufio.Scanner
	for _, path := range of.Watches {
		opened = append(opened, s.watch(ctx, path))
	}
	for _, do := range of.Steps {
		r.answers = append(r.answers, s.do(ctx, do))
		if do.Hook != "" {
			s.waitForHooks(ctx, do.Hook)
		}
	}
	for _, scanner := range opened {
		r.events = append(r.events, s.events(scanner, false))
	}
	s.expire()
	for _, path := range of.LateWatches {
		r.events = append(r.events, s.events(s.watch(ctx, path+"&timeoutSeconds=30"), true))
	}
	return r
}

func (s *side) watch(ctx context.Context, path string) *bufio.Scanner {
	response := s.send(ctx, step{Name: path, Do: "GET " + path})
	s.t.Cleanup(func() { _ = response.Body.Close() })
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 1<<20)
	return scanner
}

// events reads a watch until the last object of the script, or until the end of the initial events.
func (s *side) events(scanner *bufio.Scanner, late bool) []any {
	var events []any
	for scanner.Scan() {
		var event map[string]any
		s.Expect(json.Unmarshal(scanner.Bytes(), &event)).To(Succeed())
		events = append(events, s.normal(event))
		object, _ := event["object"].(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if !late && metadata["name"] == last || annotations["k8s.io/initial-events-end"] != nil {
			return events
		}
	}
	if !late {
		s.t.Errorf("a watch has ended: %v", scanner.Err())
	}
	return events
}

func TestSimEqualsTheRealThing(t *testing.T) {
	paths, err := controlplane.CAPICRDPaths()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	paths = append(paths[:1], "../../controlplane/crds/infrastructure.cluster.x-k8s.io.yaml", "testdata/things.yaml")
	of := readScript(t)
	var real, memory recording
	t.Run("real", func(t *testing.T) { real = runReal(t, paths, of) })
	t.Run("memory", func(t *testing.T) {
		found := envtest.CRDInstallOptions{Paths: paths}
		NewWithT(t).Expect(envtest.ReadCRDFiles(&found)).To(Succeed())
		synctest.Test(t, func(t *testing.T) { memory = runMemory(t, found.CRDs, of) })
	})
	if len(memory.answers) == 0 || len(real.answers) == 0 {
		return
	}
	for i, do := range of.Steps {
		t.Run(do.Name, func(t *testing.T) {
			code := do.Code
			if code == 0 {
				code = map[bool]int{true: http.StatusCreated, false: http.StatusOK}[strings.HasPrefix(do.Do, "POST")]
			}
			if real.answers[i].Code != code {
				t.Errorf("the real one says %d: %s", real.answers[i].Code, show(real.answers[i].Body))
			}
			diff := cmp.Diff(real.answers[i], memory.answers[i])
			if do.Differs != "" && diff == "" {
				t.Errorf("no longer differs: %s", do.Differs)
			}
			if do.Differs == "" && diff != "" {
				t.Errorf("- real, + in memory\n%s", diff)
			}
			if os.Getenv("SHOW") != "" {
				t.Logf("%s\n%s", do.Do, show(real.answers[i]))
			}
		})
	}
	for i, path := range slices.Concat(of.Watches, of.LateWatches) {
		t.Run("watch "+path, func(t *testing.T) {
			if diff := cmp.Diff(real.events[i], memory.events[i]); diff != "" {
				t.Errorf("- real, + in memory\n%s", diff)
			}
		})
	}
}

func runReal(t *testing.T, crds []string, of script) recording {
	plane, err := controlplane.Start(t.Context(), controlplane.Options{CRDPaths: crds})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { NewWithT(t).Expect(plane.Stop()).To(Succeed()) }()
	s := newSide(t, plane.User)
	server := s.hooks.serve()
	defer server.Close()
	return s.run(t.Context(), of)
}

func runMemory(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition, of script) recording {
	h := &hooks{}
	server, err := apiserver.New(apiserver.Options{Name: "memory", CRDs: crds, Webhook: h.call})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s := newSide(t, func(user string, groups ...string) (*rest.Config, error) { return server.Client(user, groups...), nil })
	s.hooks, s.expire = h, server.Expire
	return s.run(t.Context(), of)
}

func newSide(t *testing.T, connect func(string, ...string) (*rest.Config, error)) *side {
	return &side{
		t: t, WithT: NewWithT(t), connect: connect, clients: map[string]*http.Client{}, hooks: &hooks{}, expire: func() {}, known: map[string]string{},
		normaliser: normaliser{tokens: map[string]string{}, versions: map[string]string{}},
	}
}

func show(value any) string {
	text, _ := yaml.Marshal(value)
	return string(text)
}
