// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// parse returns the configuration with these flags. Probes and diagnostics have their own ports.
func parse(t *testing.T, args ...string) *config.Config {
	t.Helper()
	options, flags := config.NewOptions(), pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(flags)
	NewWithT(t).Expect(flags.Parse(append([]string{"--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0"}, args...))).To(Succeed())
	c, err := options.Complete()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// statusOf sends a request to a server, optionally with a token and certificates, and returns the status and the body of the answer.
func statusOf(t *testing.T, url, token string, certificates ...tls.Certificate) (int, string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := transport.RoundTrip(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.Proto).To(Equal("HTTP/1.1"), "with HTTP/2, a connection has many requests at a time")
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

func TestProbes(t *testing.T) {
	Expect := NewWithT(t).Expect
	filled, m := &atomic.Bool{}, &onlyAdded{}
	Expect(addProbes(m, parse(t), valid(t), filled)).To(Succeed())
	url := "http://" + m.start(t)
	for _, tc := range []struct {
		path          string
		before, after int
	}{
		{"/healthz", 200, 200}, {"/healthz/ping", 200, 200}, {"/healthz/caches", 404, 404},
		{"/readyz", 500, 200}, {"/readyz/caches", 500, 200}, {"/readyz/certificate", 200, 200}, {"/readyz?exclude=caches", 200, 200},
		{"/", 404, 404}, {"/metrics", 404, 404},
	} {
		for is, want := range map[bool]int{false: tc.before, true: tc.after} {
			filled.Store(is)
			status, _ := statusOf(t, url+tc.path, "")
			Expect(status).To(Equal(want), "%s, filled: %t", tc.path, is)
		}
	}
	filled.Store(false)
	_, verbose := statusOf(t, url+"/readyz?verbose", "")
	Expect(verbose).To(ContainSubstring("[-]caches failed"))
	Expect(verbose).To(ContainSubstring("[+]certificate ok"))
}

// A client that takes all connections of the webhooks must not cause a restart of the program.
func TestProbesAnswerWhileWebhooksHaveNoConnectionLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	webhooks := added(t, t.Context(), false, saysProtocol()).start(t)
	for range mostConnections {
		dial(t, webhooks)
	}
	filled, m, c := &atomic.Bool{}, &onlyAdded{}, parse(t)
	filled.Store(true)
	host, port, err := net.SplitHostPort(webhooks)
	Expect(err).NotTo(HaveOccurred())
	c.WebhookHost = host
	c.WebhookPort, err = net.LookupPort("tcp", port)
	Expect(err).NotTo(HaveOccurred())
	Expect(addProbes(m, c, valid(t), filled)).To(Succeed())
	url := "http://" + m.start(t)
	for _, probe := range []string{"/healthz", "/readyz"} {
		status, body := statusOf(t, url+probe, "")
		Expect(status).To(Equal(http.StatusOK), probe)
		Expect(body).To(Equal("ok"), probe)
	}
}

// reviews returns the configuration of an API server that takes a token as a user's name. The user "scraper" may read metrics, and "admin"
// everything.
func reviews(t *testing.T) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path.Base(r.URL.Path) {
		case "tokenreviews":
			review := &authenticationv1.TokenReview{}
			_ = json.NewDecoder(r.Body).Decode(review)
			review.Status.Authenticated, review.Status.User.Username = review.Spec.Token != "nobody", review.Spec.Token
			_ = json.NewEncoder(w).Encode(review)
		case "subjectaccessreviews":
			review := &authorizationv1.SubjectAccessReview{}
			_ = json.NewDecoder(r.Body).Decode(review)
			what := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "admin" || review.Spec.User == "scraper" && what.Verb == "get" && what.Path == "/metrics"
			_ = json.NewEncoder(w).Encode(review)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestDiagnosticsAreForThoseWhoMayReadThem(t *testing.T) {
	Expect := NewWithT(t).Expect
	m, served := &onlyAdded{config: reviews(t)}, valid(t)
	Expect(addDiagnostics(m, parse(t), served)).To(Succeed())
	address := m.start(t)
	certificate, err := served(nil)
	Expect(err).NotTo(HaveOccurred())
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	Expect(err).NotTo(HaveOccurred())
	Expect(connection.ConnectionState().PeerCertificates[0].Raw).To(Equal(certificate.Certificate[0]), "it is the webhooks' certificate, which can be verified")
	Expect(connection.Close()).To(Succeed())
	for _, tc := range []struct {
		path, token string
		want        int
		body        string
	}{
		{path: "/metrics", want: http.StatusUnauthorized},
		{path: "/metrics", token: "nobody", want: http.StatusInternalServerError, body: "Authentication failed"},
		{path: "/metrics", token: "stranger", want: http.StatusForbidden},
		{path: "/metrics", token: "scraper", want: http.StatusOK, body: "# TYPE rest_client_requests_total counter"},
		{path: "/debug/pprof/", want: http.StatusUnauthorized},
		{path: "/debug/pprof/", token: "scraper", want: http.StatusForbidden},
		{path: "//metrics", token: "scraper", want: http.StatusForbidden},
		{path: "/debug/pprof/", token: "admin", want: http.StatusOK, body: "profiles"},
		{path: "/debug/pprof/heap", token: "admin", want: http.StatusOK},
		{path: "/debug/pprof/cmdline", token: "admin", want: http.StatusOK},
		{path: "/debug/flags/v", token: "scraper", want: http.StatusForbidden},
		{path: "/debug/flags/v", token: "admin", want: http.StatusNotAcceptable, body: "unsupported http method"},
		{path: "/healthz", token: "admin", want: http.StatusNotFound},
	} {
		status, body := statusOf(t, "https://"+address+tc.path, tc.token)
		Expect(status).To(Equal(tc.want), "%s for %q", tc.path, tc.token)
		Expect(body).To(ContainSubstring(tc.body), "%s for %q", tc.path, tc.token)
	}
}

func TestInsecureDiagnosticsAreMetricsOnly(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &onlyAdded{}
	Expect(addDiagnostics(m, parse(t, "--insecure-diagnostics"), nil)).To(Succeed())
	url := "http://" + m.start(t)
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/debug/pprof/": http.StatusNotFound, "/debug/flags/v": http.StatusNotFound} {
		status, _ := statusOf(t, url+path, "")
		Expect(status).To(Equal(want), path)
	}
}

func TestDiagnosticsCanBeOff(t *testing.T) {
	m := &onlyAdded{}
	NewWithT(t).Expect(addDiagnostics(m, parse(t, "--diagnostics-address=0"), nil)).To(Succeed())
	NewWithT(t).Expect(m.added).To(BeEmpty())
}

func TestTakenPortIsReported(t *testing.T) {
	Expect := NewWithT(t).Expect
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer taken.Close()
	c := parse(t, "--insecure-diagnostics", "--health-addr="+taken.Addr().String(), "--diagnostics-address="+taken.Addr().String())
	Expect(addProbes(&onlyAdded{}, c, valid(t), &atomic.Bool{})).To(MatchError(HavePrefix("listening for probes: ")))
	Expect(addDiagnostics(&onlyAdded{}, c, nil)).To(MatchError(HavePrefix("listening for diagnostics: ")))
}

// overPipe sends these bytes to a server of probes or diagnostics, in a bubble of synctest. It returns the answer until the server closes
// the connection, and the time until then.
func overPipe(t *testing.T, handler http.Handler, sent string) (answer string, after time.Duration) {
	t.Helper()
	Expect := NewWithT(t).Expect
	ours, theirs := net.Pipe()
	servesOne(t, bounded("probes", briefTimeout, handler), theirs)
	since := time.Now()
	go func() { _, _ = io.WriteString(ours, sent) }() // the server need not read all bytes
	read, err := io.ReadAll(ours)
	after = time.Since(since)
	Expect(err).NotTo(HaveOccurred())
	Expect(ours.Close()).To(Succeed())
	return string(read), after
}

// A connection of probes and diagnostics uses little memory, and has a short timeout.
func TestBriefRequests(t *testing.T) {
	says := func(after time.Duration) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(after):
				_, _ = io.WriteString(w, "said")
			}
		})
	}
	header := func(size int) string { return "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", size) + "\r\n" }
	for name, tc := range map[string]struct {
		sent    string
		handler http.Handler
		answer  string
		after   time.Duration
	}{
		"nothing comes":                           {after: briefTimeout},
		"the header is not finished":              {sent: header(10), after: briefTimeout},
		"the next request does not come":          {sent: header(10) + "\r\n", answer: "200 OK", after: briefTimeout},
		"the body is not finished":                {sent: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf", answer: "200 OK", after: briefTimeout},
		"a long token is no problem":              {sent: header(mostHeaders-100) + "\r\n", answer: "200 OK", after: briefTimeout},
		"the header is too large":                 {sent: header(2 * mostHeaders), answer: "431 Request Header Fields Too Large"},
		"an answer that takes time, as a profile": {sent: header(10) + "\r\n", handler: says(4 * briefTimeout), answer: "200 OK", after: 5 * briefTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				handler := tc.handler
				if handler == nil {
					handler = says(0)
				}
				answer, after := overPipe(t, handler, tc.sent)
				Expect(answer).To(ContainSubstring(tc.answer))
				if tc.answer == "200 OK" {
					Expect(answer).To(ContainSubstring("said"))
				}
				Expect(after).To(BeNumerically("~", tc.after, time.Second)) // net/http takes a moment to close the connection
			})
		})
	}
}

// An answer that the client does not read keeps its memory, so it has a timeout.
func TestAnswersMustBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		written := make(chan error, 1)
		server := bounded("diagnostics", briefTimeout, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
			written <- err
		}))
		ours, theirs := net.Pipe()
		servesOne(t, server, theirs)
		since := time.Now()
		_, err := io.WriteString(ours, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
		Expect(err).NotTo(HaveOccurred())
		Expect(<-written).To(HaveOccurred())
		Expect(time.Since(since)).To(Equal(webhooks.LongestAnswer))
		Expect(ours.Close()).To(Succeed())
	})
}
