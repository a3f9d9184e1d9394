// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	// The import keeps Cluster API's module, with the CustomResourceDefinitions of CAPICRDPaths, in go.mod. The package is empty.
	_ "sigs.k8s.io/cluster-api/controllers"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS" // the variable of envtest
	toolsVariable  = "HEIRLOOM_TOOLS"
	helmVariable   = "HEIRLOOM_HELM"
	helm3Variable  = "HEIRLOOM_HELM3"
	nodeVariable   = "HEIRLOOM_NODE"

	clusterAPIVariable = "HEIRLOOM_CLUSTER_API"
	dockerVariable     = "HEIRLOOM_CAPD"
)

// ClusterAPIProgram returns the path of a program of Cluster API, such as a manager.
func ClusterAPIProgram(name string) (string, error) {
	return program(clusterAPIVariable, name)
}

// CAPIModule returns the directory of Cluster API's module, at the version that go.mod requires.
func CAPIModule(ctx context.Context) (string, error) {
	_, dir, err := pinned(ctx, ".", capiModule)
	return dir, err
}

// DockerProvider returns the version of Cluster API's Docker provider, its directory in its module, and its manager.
func DockerProvider(ctx context.Context) (version, dir, manager string, err error) {
	root, err := RepositoryRoot(ctx)
	if err != nil {
		return "", "", "", err
	}
	if manager, err = program(dockerVariable, "capd"); err != nil {
		return "", "", "", err
	}
	version, dir, err = pinned(ctx, filepath.Join(root, "hack", "tools", "cluster-api"), capiModule+"/test")
	return version, filepath.Join(dir, "infrastructure", "docker"), manager, err
}

// program returns the path of a program in the directory that an environment variable names.
func program(variable, name string) (string, error) {
	dir := os.Getenv(variable)
	if dir == "" {
		return "", fmt.Errorf("%s is not set, so there is no %s to run: use `make test` (or one of its parts), which builds it and sets that",
			variable, name)
	}
	path, err := exec.LookPath(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("%s has no %s: %w", variable, name, err)
	}
	return path, nil
}

// program returns the path of a program of the control plane.
func (o Options) program(name string) (string, error) {
	if o.Assets == "" {
		return program(assetsVariable, name)
	}
	return exec.LookPath(filepath.Join(o.Assets, name))
}

// NodeProgram returns the path of a program of a real Node or of its controllers, for test/cluster.
func NodeProgram(name string) (string, error) {
	return program(nodeVariable, name)
}

// RepositoryRoot returns the directory of the Go module in which the process runs: Heirloom's own under "go test" and "go run".
func RepositoryRoot(ctx context.Context) (string, error) {
	file, err := goCommand(ctx, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if file == "" || file == os.DevNull {
		return "", errors.New("not inside a Go module: run this inside the repository")
	}
	return filepath.Dir(file), nil
}

// Built returns the path of a program of Heirloom that make build has built.
func Built(ctx context.Context, name string) (string, error) {
	root, err := RepositoryRoot(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make build, or the make target of this test, which does it", err)
	}
	return path, nil
}

// CAPICRDPaths returns the directories with the CustomResourceDefinitions of Cluster API's core, of its kubeadm
// bootstrap provider and of its kubeadm control-plane provider, at the version that go.mod requires.
func CAPICRDPaths() ([]string, error) {
	module, err := CAPIModule(context.Background())
	return capiCRDPaths(module, "core"), err
}

// ProviderCRDPath returns the directory with the CustomResourceDefinitions of the tests' own providers: InfraMachines in two API
// groups, and control planes of both versions of Cluster API's contract.
func ProviderCRDPath(ctx context.Context) (string, error) {
	root, err := RepositoryRoot(ctx)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "test", "controlplane", "crds"), nil
}

// CertManagerCRDs returns the directory with cert-manager's CustomResourceDefinitions, at the version that go.mod
// requires.
func CertManagerCRDs() (string, error) {
	_, dir, err := pinned(context.Background(), ".", "github.com/cert-manager/cert-manager")
	return filepath.Join(dir, "deploy", "crds"), err
}

// PrometheusOperatorCRDs returns the files with the CustomResourceDefinitions of the Prometheus Operator's kinds in the chart.
func PrometheusOperatorCRDs(ctx context.Context) ([]string, error) {
	root, err := RepositoryRoot(ctx)
	if err != nil {
		return nil, err
	}
	pinnedIn := filepath.Join(root, "hack", "tools", "prometheus")
	_, dir, err := pinned(ctx, pinnedIn, "github.com/prometheus-operator/prometheus-operator")
	if err != nil {
		return nil, err
	}
	prefix := filepath.Join(dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_")
	return []string{prefix + "podmonitors.yaml", prefix + "prometheusrules.yaml", prefix + "servicemonitors.yaml"}, nil
}

// goAnswers are the results of goCommand by its arguments. They do not change while this process runs, and the go command is slow.
var goAnswers sync.Map

func goCommand(ctx context.Context, args ...string) (string, error) {
	key := strings.Join(args, " ")
	if known, ok := goAnswers.Load(key); ok {
		return fmt.Sprint(known), nil
	}
	command := exec.CommandContext(ctx, "go", args...)
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", key, err, strings.TrimSpace(stderr.String()))
	}
	answer := strings.TrimSpace(string(stdout))
	goAnswers.Store(key, answer)
	return answer, nil
}
