// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl with a kubeconfig file and returns what it prints, also when it fails.
func Kubectl(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, nil, "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// Helm runs helm with a kubeconfig file and returns what it prints, also when it fails.
func Helm(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, nil, "helm", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// run runs one of the tools to its end.
func run(ctx context.Context, stdin io.Reader, tool string, args ...string) (stdout, stderr string, err error) {
	path, err := program(toolsVariable, tool)
	if err != nil {
		return "", "", err
	}
	var out, errOut strings.Builder
	command := exec.CommandContext(ctx, path, args...)
	command.Stdin, command.Stdout, command.Stderr = stdin, &out, &errOut
	if err := command.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
		return out.String(), errOut.String(), err
	}
	return out.String(), errOut.String(), nil
}
