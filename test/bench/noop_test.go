// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	noOpPath = "/no-op"
	// noOpEnvironment makes this test binary a no-op webhook. The variable has the ports of webhook, metrics and health, and the directory
	// of the certificate.
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
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		b.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	process, err := controlplane.StartProcess(b.Context(), binary, nil, dir+"/no-op.log",
		fmt.Sprintf("%s=%d %d %d %s", noOpEnvironment, ports[0], ports[1], ports[2], dir))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := process.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := process.WaitReady(b.Context(), fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[2])); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", ports[0], noOpPath), fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[1])
}

// serveNoOp serves the webhook until ctx is done.
func serveNoOp(ctx context.Context, settings string) error {
	var port, metricsPort, healthPort int
	var certificate string
	if _, err := fmt.Sscan(settings, &port, &metricsPort, &healthPort, &certificate); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificate}),
		Metrics:                server.Options{BindAddress: fmt.Sprintf("127.0.0.1:%d", metricsPort)},
		HealthProbeBindAddress: fmt.Sprintf("127.0.0.1:%d", healthPort),
	})
	if err != nil {
		return err
	}
	hooks := manager.GetWebhookServer()
	hooks.Register(noOpPath, &admission.Webhook{Handler: admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response { return admission.Allowed("") },
	)})
	if err := manager.AddReadyzCheck("webhook", hooks.StartedChecker()); err != nil {
		return err
	}
	return manager.Start(ctx)
}
