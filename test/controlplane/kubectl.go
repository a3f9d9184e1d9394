// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl with a kubeconfig file and returns its output, also if it fails.
func Kubectl(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, toolsVariable, "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// Helm runs helm with a kubeconfig file and returns its output, also if it fails.
func Helm(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, helmVariable, "helm", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// Helm3 runs Helm 3, which many operators still use, in the same way.
func Helm3(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, helm3Variable, "helm", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// run runs a tool in the directory that an environment variable names and waits until it ends.
func run(ctx context.Context, variable, tool string, args ...string) (stdout, stderr string, err error) {
	path, err := program(variable, tool)
	if err != nil {
		return "", "", err
	}
	var out, errOut strings.Builder
	command := exec.CommandContext(ctx, path, args...)
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
		return out.String(), errOut.String(), err
	}
	return out.String(), errOut.String(), nil
}
