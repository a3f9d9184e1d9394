// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
)

// How often a program that waits for Cluster API looks, and how often it says that it still waits.
const (
	lookInterval   = 2 * time.Second
	remindInterval = 5 * time.Minute
	// headerTimeout is how long a probe may take to ask.
	headerTimeout = 5 * time.Second
)

// awaitClusterAPI returns once the API server serves Cluster API, or ctx is done. Until then it waits: GitOps tools install both at
// once, and a restart would not help. If the API server cannot be asked at all, it returns an error.
func awaitClusterAPI(ctx context.Context, restConfig *rest.Config, healthAddr string) error {
	err := installed(restConfig)
	if !errors.Is(err, capabilities.ErrNoClusterAPI) {
		return err
	}
	look := func() error { return installed(restConfig) }
	return waiting{look: look, every: lookInterval, remind: remindInterval}.wait(ctx, healthAddr, err)
}

// installed asks again each time: a RESTMapper remembers what was not there.
func installed(restConfig *rest.Config) error {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Timeout = discoveryTimeout
	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return fmt.Errorf("creating the HTTP client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(restConfig, httpClient)
	if err != nil {
		return fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	return capabilities.ClusterAPI(mapper)
}

// waiting is a program that cannot start yet. Its probes say that it lives and that it is not ready.
type waiting struct {
	// look returns nil once there is nothing to wait for. Any error but ErrNoClusterAPI may pass, like an API server that restarts.
	look          func() error
	every, remind time.Duration
}

// wait returns when there is nothing to wait for, or when ctx is done.
func (w waiting) wait(ctx context.Context, healthAddr string, why error) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", healthAddr)
	if err != nil {
		return fmt.Errorf("listening for probes: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	server := &http.Server{Handler: unready(), ReadHeaderTimeout: headerTimeout}
	probes := &manager.Server{Name: "probes while waiting", Server: server, Listener: listener}
	go func() { ended <- probes.Start(serving) }()

	w.untilFound(ctx, why)
	stop()
	if err := <-ended; err != nil {
		return fmt.Errorf("answering probes: %w", err)
	}
	return nil
}

func (w waiting) untilFound(ctx context.Context, why error) {
	ticker, since, said := time.NewTicker(w.every), time.Now(), time.Now()
	defer ticker.Stop()
	say := func() {
		ctrl.Log.Info("Waiting for Cluster API", "reason", why.Error(), "for", time.Since(since).Round(time.Second).String())
	}
	say()
	for {
		select {
		case <-ctx.Done():
			ctrl.Log.Info("Told to stop before there was Cluster API")
			return
		case <-ticker.C:
		}
		if why = w.look(); why == nil {
			return
		}
		if time.Since(said) >= w.remind {
			said = time.Now()
			say()
		}
	}
}

// unready answers the probes of a program that waits.
func unready() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") }) // the kubelet may hang up
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for Cluster API", http.StatusServiceUnavailable)
	})
	return mux
}
