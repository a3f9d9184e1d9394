// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/heirloom-dev/heirloom/webhooks"
)

// Each turn of the benchmark is so many reviews for each of the two webhooks, so many at a time.
const (
	reviewsPerTurn = 200
	reviewsAtOnce  = 8
)

// BenchmarkWebhookCPU reports the CPU time that the webhook server takes for a review over saturated TLS, as a multiple of what it
// takes for the same review by controller-runtime's webhook with a handler that only says "allowed" (metric ×V2). The reviews come
// from another process, so the time is the server's alone, with that of the garbage collector.
func BenchmarkWebhookCPU(b *testing.B) {
	world := newWorld()
	handler := newServer(b, world)
	kubelet := authenticationv1.UserInfo{Username: "system:node:" + world.node.Name, Groups: []string{"system:nodes"}}
	bare := created(b, world.bare)
	inherited := patched(b, handler, webhooks.MachinesPath, create("Machine", bare))
	for _, tc := range []struct {
		name, path string
		request    admissionv1.AdmissionRequest
	}{
		{"Machine/create, 15 keys and 2 taints injected", webhooks.MachinesPath, create("Machine", bare)},
		{"Machine/update, nothing to do", webhooks.MachinesPath, update("Machine", inherited, inherited)},
		{"Node/create by its kubelet", webhooks.NodesPath, by(kubelet, create("Node", created(b, fullNode(world.node))))},
	} {
		b.Run(tc.name, func(b *testing.B) {
			body := reviewOf(b, tc.request)
			if patch := answered(b, handler, tc.path, body).Response.Patch; tc.request.Operation == admissionv1.Create == (len(patch) == 0) {
				b.Fatalf("the patch is %q", patch)
			}
			caller := callFrom(b, handler)
			var subject, baseline time.Duration
			caller.cpu(b, noOpPath, body) // warm
			caller.cpu(b, tc.path, body)
			b.ReportAllocs()
			for b.Loop() {
				baseline += caller.cpu(b, noOpPath, body)
				subject += caller.cpu(b, tc.path, body)
			}
			b.ReportMetric(float64(subject)/float64(baseline), "×V2")
			b.ReportMetric(float64(subject.Microseconds())/float64(b.N*reviewsPerTurn), "cpu-µs/review")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// caller is a process that sends reviews.
type caller struct {
	into io.Writer
	done *bufio.Scanner
}

// turn is what a caller is told: to send a review so many times.
type turn struct {
	URL   string
	Body  []byte
	Times int
}

// callerVariable makes this program a caller.
const callerVariable = "HEIRLOOM_BENCH_CALLER"

// callFrom serves a handler, and starts a process that calls it.
func callFrom(b *testing.B, handler http.Handler) *caller {
	b.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	command := exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0])
	command.Env = append(os.Environ(), callerVariable+"="+server.URL)
	command.Stderr = os.Stderr
	into, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	from, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = into.Close()
		if err := command.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &caller{into: into, done: bufio.NewScanner(from)}
}

// cpu returns how much CPU time this process takes for one turn.
func (c *caller) cpu(b *testing.B, path string, body []byte) time.Duration {
	b.Helper()
	before := cpuTime(b)
	if err := json.NewEncoder(c.into).Encode(turn{URL: path, Body: body, Times: reviewsPerTurn}); err != nil {
		b.Fatal(err)
	}
	if !c.done.Scan() {
		b.Fatal("the caller has ended")
	}
	return cpuTime(b) - before
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// call is the program of a caller: it takes turns until its input ends.
func call(server string) error {
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	turns := json.NewDecoder(os.Stdin)
	for {
		var t turn
		if err := turns.Decode(&t); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a turn: %w", err)
		}
		var all errgroup.Group
		all.SetLimit(reviewsAtOnce)
		for range t.Times {
			all.Go(func() error { return send(client, server+t.URL, t.Body) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
		fmt.Println("done")
	}
}

func send(client *http.Client, url string, body []byte) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s, %w", url, response.Status, err)
	}
	return nil
}
