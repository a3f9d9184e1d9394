// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built programs, from the chart to the Node.
package e2e

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/heirloom-dev/heirloom/test/controlplane"
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
	t.Parallel()
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
