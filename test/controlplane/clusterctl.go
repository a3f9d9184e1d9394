// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Clusterctl runs clusterctl, at the version of Cluster API that go.mod requires, in a home directory of its own.
type Clusterctl struct {
	// Dir is the directory of its configuration and its repositories.
	Dir string
	// Kubeconfig is the kubeconfig file of the management cluster.
	Kubeconfig string
}

// Repository creates the directory of one version of a provider, such as addon-heirloom, and returns it.
func (c *Clusterctl) Repository(provider, version string) (string, error) {
	dir := filepath.Join(c.Dir, "repository", provider, version)
	return dir, os.MkdirAll(dir, 0o700)
}

// AddCore puts Cluster API's core provider into the repository, rendered from the manifests of its release.
func (c *Clusterctl) AddCore(ctx context.Context) error {
	version, module, err := pinned(ctx, ".", capiModule)
	if err != nil {
		return err
	}
	dir, err := c.Repository("cluster-api", version)
	if err != nil {
		return err
	}
	components, _, err := run(ctx, nil, toolsVariable, "kubectl", "kustomize", filepath.Join(module, "core", "config", "default"))
	if err != nil {
		return err
	}
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	if err != nil {
		return fmt.Errorf("reading Cluster API's release series: %w", err)
	}
	for name, content := range map[string]string{"core-components.yaml": components, "metadata.yaml": string(metadata)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing the core provider: %w", err)
		}
	}
	return nil
}

// Configure writes clusterctl's configuration: the names of the providers in the repository, and variables.
func (c *Clusterctl) Configure(variables string) error {
	const providers = `providers:
- {name: cluster-api, type: CoreProvider, url: "file://%[1]s/cluster-api/latest/core-components.yaml"}
- {name: heirloom, type: AddonProvider, url: "file://%[1]s/addon-heirloom/latest/addon-components.yaml"}
`
	content := fmt.Sprintf(providers, filepath.Join(c.Dir, "repository")) + variables
	if err := os.WriteFile(c.config(), []byte(content), 0o600); err != nil {
		return fmt.Errorf("configuring clusterctl: %w", err)
	}
	return nil
}

func (c *Clusterctl) config() string {
	return filepath.Join(c.Dir, "clusterctl.yaml")
}

// Run runs a command of clusterctl and returns its standard output.
func (c *Clusterctl) Run(ctx context.Context, args ...string) (stdout string, err error) {
	args = append(args, "--config", c.config())
	if args[0] != "generate" {
		args = append(args, "--kubeconfig", c.Kubeconfig)
	}
	env := []string{"HOME=" + c.Dir, "XDG_CONFIG_HOME=" + c.Dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
	stdout, _, err = run(ctx, env, clusterAPIVariable, "clusterctl", args...)
	return stdout, err
}
