// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// The environment of a process that serves the no-op webhook: its ports, and the directory of its certificate.
const (
	noOpPath        = "/no-op"
	noOpEnvironment = "HEIRLOOM_BENCH_NO_OP"
	noOpCertificate = "HEIRLOOM_BENCH_NO_OP_CERTIFICATE"
)

// noOp is controller-runtime's webhook with a handler that allows every request, in its own process like Heirloom, so that its usage and
// its callers' usage are measured separately.
type noOp struct {
	url, report string
	ca          []byte
}

// noOpUsage has the number of requests and the CPU time of the process so far.
type noOpUsage struct {
	Requests int64
	CPU      time.Duration
}

// startNoOp starts this test binary as the no-op webhook.
func startNoOp(b *testing.B) *noOp {
	b.Helper()
	n := &noOp{}
	dir := b.TempDir()
	var err error
	if n.ca, err = controlplane.ServingCertificate(dir, "127.0.0.1"); err != nil {
		b.Fatal(err)
	}
	port, err := controlplane.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	reports, err := controlplane.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	n.url, n.report = fmt.Sprintf("https://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", reports)
	binary, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	process, err := controlplane.StartProcess(b.Context(), binary, nil, dir+"/no-op.log",
		fmt.Sprintf("%s=%d:%d", noOpEnvironment, port, reports), noOpCertificate+"="+dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := process.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := process.WaitReady(b.Context(), n.report); err != nil {
		b.Fatal(err)
	}
	return n
}

// usage reads the usage that the process reports.
func (n *noOp) usage(b *testing.B) (used noOpUsage) {
	b.Helper()
	response, err := http.Get(n.report)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&used); err != nil {
		b.Fatal(err)
	}
	return used
}

// serveNoOp serves the webhook at the first of two ports and, once the webhook is ready, the report at the second port.
func serveNoOp(ctx context.Context, ports, certificate string) error {
	host, reports, err := net.SplitHostPort(ports)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(host)
	if err != nil {
		return err
	}
	var requests atomic.Int64
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificate})
	server.Register(noOpPath, &admission.Webhook{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			requests.Add(1)
			return admission.Allowed("")
		}),
	})
	started := server.StartedChecker()
	report := http.Server{Addr: "127.0.0.1:" + reports, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var used syscall.Rusage
		err := started(r)
		if err == nil {
			err = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(noOpUsage{Requests: requests.Load(), CPU: time.Duration(used.Utime.Nano() + used.Stime.Nano())})
	})}
	failed := make(chan error, 2)
	go func() { failed <- report.ListenAndServe() }()
	go func() { failed <- server.Start(ctx) }()
	err = <-failed
	_ = report.Close()
	return err
}
