// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	patience = 90 * time.Second
	polling  = 100 * time.Millisecond
)

// shared is the cluster that all tests use, with an administrator's client.
var shared struct {
	*cluster.Cluster
	client.Client
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	os.Exit(cluster.Main(func() int { return run(m) }))
}

// run runs the tests, with a cluster where this machine can run a cluster.
func run(m *testing.M) int {
	if cluster.Missing() != "" {
		return m.Run()
	}
	started := time.Now()
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: starting the cluster:", err)
		return 1
	}
	fmt.Printf("the cluster is up after %.1f s\n", time.Since(started).Seconds())
	code := m.Run()
	if code != 0 {
		showLogs()
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: stopping the cluster:", err)
		return 1
	}
	return code
}

func start() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	paths, err := controlplane.CAPICRDPaths()
	if err != nil {
		return err
	}
	providers, err := controlplane.ProviderCRDPath(ctx)
	if err != nil {
		return err
	}
	image := os.Getenv("HEIRLOOM_IMAGE")
	if image == "" {
		return fmt.Errorf("HEIRLOOM_IMAGE is not set, so there is no image to run: use `make test-cluster`, which builds it and sets that")
	}
	shared.Cluster, err = cluster.Start(ctx, cluster.Options{CRDPaths: append(paths, providers), Image: image})
	if err != nil {
		return err
	}
	shared.Client, err = client.New(shared.AdminConfig(), client.Options{Scheme: stage.Scheme()})
	return err
}

// showLogs prints the end of each program's log.
func showLogs() {
	logs, err := shared.Logs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Printf("--- end of %s\n%s\n", log, content[max(0, len(content)-8_000):])
	}
}
