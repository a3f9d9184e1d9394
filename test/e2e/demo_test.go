// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built programs, from the chart to the Node.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// binary returns the path of a program that `make build` has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := controlplane.Built(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The demo checks all that it shows: it is the main job from end to end, and it must show all of it.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, "go", "run", "../demo", "--heirloom", binary(t, "heirloom"))
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	summary := regexp.MustCompile(`(?m)^(\d+) checks passed, 0 failed`).FindSubmatch(out)
	if summary == nil {
		t.Fatalf("the demo has no summary without failures:\n%s", out)
	}
	if passed, err := strconv.Atoi(string(summary[1])); err != nil || passed < 40 {
		t.Fatalf("the demo has checked too little: %s", summary[0])
	}
}

// The kubectl plugin tells where the keys of a Machine come from, on a real fleet.
func TestExplain(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir, err := os.MkdirTemp("", "explain")
	Expect(err).NotTo(HaveOccurred())
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := stage.New(ctx, stage.Options{Program: binary(t, "heirloom"), Dir: dir})
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(s.Stop()).To(Succeed()) }()

	cluster := stage.Cluster("default", "c")
	Expect(s.Client.Create(ctx, cluster)).To(Succeed())
	md := stage.MachineDeployment(cluster, "workers", stage.Declared{Labels: map[string]string{"team": "ml"}})
	Expect(s.Client.Create(ctx, md)).To(Succeed())
	ms := stage.MachineSet(md, "workers-1")
	Expect(s.Client.Create(ctx, ms)).To(Succeed())
	m := stage.Machine(ms, "worker-1")
	m.Labels["mine"] = "yes"
	Expect(s.Client.Create(ctx, m)).To(Succeed())

	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	Expect(s.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	explain := exec.CommandContext(ctx, binary(t, "kubectl-heirloom"), "explain", "machine/worker-1", "--kubeconfig", kubeconfig)
	out, err := explain.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	Expect(string(out)).To(MatchRegexp(`(?m)^label\s+team\s+ml\s+MachineDeployment default/workers spec\.template\.metadata\.labels \(owned by heirloom\)`))
	Expect(string(out)).To(MatchRegexp(`(?m)^label\s+mine\s+yes\s+set here by`))
	Expect(string(out)).To(ContainSubstring(clusterv1.ClusterNameLabel))
}
