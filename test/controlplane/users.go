// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AdminConfig returns a configuration, the caller's own, for a user in group system:masters. It sets no client-side
// rate limit, as none of this package's configurations do.
func (cp *ControlPlane) AdminConfig() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// User makes a client certificate for a user in these groups.
func (cp *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := cp.addUser(name, groups)
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// Kubeconfig is User as the bytes of a kubeconfig file.
func (cp *ControlPlane) Kubeconfig(name string, groups ...string) ([]byte, error) {
	user, err := cp.addUser(name, groups)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, fmt.Errorf("making a kubeconfig for user %q: %w", name, err)
	}
	return kubeconfig, nil
}

// WriteKubeconfig is Kubeconfig written to a file that only its owner can read.
func (cp *ControlPlane) WriteKubeconfig(path, name string, groups ...string) error {
	kubeconfig, err := cp.Kubeconfig(name, groups...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of user %q: %w", name, err)
	}
	return nil
}

func (cp *ControlPlane) addUser(name string, groups []string) (*envtest.AuthenticatedUser, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	user, err := cp.environment.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("making a certificate for user %q: %w", name, err)
	}
	return user, nil
}
