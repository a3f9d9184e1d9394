// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	noOpPath = "/no-op"
	// noOpEnvironment makes this test binary a no-op webhook. The variable has the port of the webhook, the address of metrics and health, and
	// the directory of the certificate.
	noOpEnvironment = "HEIRLOOM_BENCH_NO_OP"
)

// startNoOp starts controller-runtime's webhook with a handler that allows every request, in a process of its own like Heirloom, so that
// its CPU time is its own. It returns the URLs of the webhook and of the metrics.
func startNoOp(b *testing.B) (url, metricsURL string) {
	b.Helper()
	dir := b.TempDir()
	if _, err := controlplane.ServingCertificate(dir, "127.0.0.1"); err != nil {
		b.Fatal(err)
	}
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		b.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	side := fmt.Sprintf("127.0.0.1:%d", ports[1])
	process, err := controlplane.StartProcess(b.Context(), binary, nil, dir+"/no-op.log",
		fmt.Sprintf("%s=%d %s %s", noOpEnvironment, ports[0], side, dir))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := process.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := process.WaitReady(b.Context(), "http://"+side+"/readyz"); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", ports[0], noOpPath), "http://" + side + "/metrics"
}

// serveNoOp serves the webhook, and metrics and health at a second port, until ctx is done. It is no manager: what a manager keeps in memory
// would let its garbage collector run less often.
func serveNoOp(ctx context.Context, settings string) error {
	var port int
	var side, certificate string
	if _, err := fmt.Sscan(settings, &port, &side, &certificate); err != nil {
		return err
	}
	hooks := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificate})
	hooks.Register(noOpPath, &admission.Webhook{Handler: admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response { return admission.Allowed("") },
	)})
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	mux.Handle("/readyz", healthz.CheckHandler{Checker: hooks.StartedChecker()})
	server := http.Server{Addr: side, Handler: mux, ReadHeaderTimeout: time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return hooks.Start(ctx) })
	group.Go(func() error {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	<-ctx.Done()
	return errors.Join(server.Close(), group.Wait())
}
