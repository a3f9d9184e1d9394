// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	// NodeName is the Node's name.
	NodeName = "node"
	// ProviderID is the provider ID that its kubelet reports.
	ProviderID = "test://node"
)

// Options describes the initial content of a cluster.
type Options struct {
	// CRDPaths are files and directories whose CustomResourceDefinitions are installed.
	CRDPaths []string
	// Image is an archive of an image that Pods can use.
	Image string
}

// Cluster is a Kubernetes cluster of one Node.
type Cluster struct {
	*controlplane.ControlPlane
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Image is the name of the image in the archive of Options.
	Image string

	dir       string
	processes []*controlplane.Process // in the order of their starts
}

// Start starts a cluster in the namespaces that Main has entered. Its Node may not be ready yet. ctx limits only the start: Stop ends the
// cluster.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{dir: os.Getenv(dirVariable)}
	c.Kubeconfig = filepath.Join(c.dir, "admin.kubeconfig")
	for _, step := range []func(context.Context, Options) error{
		c.startControlPlane, c.startControllers, c.startContainerd, c.startNode,
	} {
		if err := step(ctx, options); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// startControlPlane starts an API server that Pods can reach: at the Node's address, with a certificate for this address. Clients on the
// Node use the loopback interface, as with every other control plane of these tests.
func (c *Cluster) startControlPlane(ctx context.Context, options Options) error {
	if _, err := controlplane.ServingCertificate(c.dir, nodeAddress, apiServiceIP); err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{
		CRDPaths: options.CRDPaths,
		LogDir:   c.dir,
		APIServerArgs: map[string][]string{
			"bind-address":                     {"0.0.0.0"},
			"advertise-address":                {nodeAddress},
			"tls-sni-cert-key":                 {fmt.Sprintf("%s,%s:%s", c.path("tls.crt"), c.path("tls.key"), nodeAddress)},
			"service-cluster-ip-range":         {serviceIPs},
			"service-account-key-file":         {c.path("tls.crt")},
			"service-account-signing-key-file": {c.path("tls.key")},
			"kubelet-preferred-address-types":  {"InternalIP"},
			"disable-admission-plugins":        nil, // without it envtest disables ServiceAccount
		},
	})
	if err != nil {
		return err
	}
	c.ControlPlane = cp
	return cp.WriteKubeconfig(c.Kubeconfig, "admin", "system:masters")
}

// startControllers starts the controller manager and the scheduler, each with the rights of its own user.
func (c *Cluster) startControllers(ctx context.Context, _ Options) error {
	err := c.start(ctx, "kube-controller-manager", "system:kube-controller-manager",
		"--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file="+c.path("tls.key"), "--root-ca-file="+c.path("ca.crt"))
	if err != nil {
		return err
	}
	return c.start(ctx, "kube-scheduler", "system:kube-scheduler", "--leader-elect=false")
}

// start starts a program of Kubernetes with a kubeconfig for this user.
func (c *Cluster) start(ctx context.Context, name, user string, args ...string) error {
	path, err := controlplane.NodeProgram(name)
	if err != nil {
		return err
	}
	kubeconfig := c.path(name + ".kubeconfig")
	if err := c.WriteKubeconfig(kubeconfig, user); err != nil {
		return err
	}
	return c.startProcess(ctx, path, append(args, "--kubeconfig="+kubeconfig)...)
}

// startProcess starts a program that outlives ctx.
func (c *Cluster) startProcess(ctx context.Context, path string, args ...string) error {
	process, err := controlplane.StartProcess(context.WithoutCancel(ctx), path, args, c.path(filepath.Base(path)+".log"))
	if err == nil {
		c.processes = append(c.processes, process)
	}
	return err
}

func (c *Cluster) path(name string) string {
	return filepath.Join(c.dir, name)
}

// Logs returns the logs of the cluster's programs.
func (c *Cluster) Logs() ([]string, error) {
	return filepath.Glob(c.path("*.log"))
}

// Stop stops all programs except the containers, which end with this process. It returns an error if a program has ended before.
func (c *Cluster) Stop() error {
	var errs []error
	for _, process := range slices.Backward(c.processes) {
		errs = append(errs, stop(process))
	}
	if c.ControlPlane != nil {
		errs = append(errs, c.ControlPlane.Stop())
	}
	return errors.Join(errs...)
}

// stop ends a program. Its exit code matters only if it has ended before: the scheduler's exit code is always 1.
func stop(process *controlplane.Process) error {
	select {
	case <-process.Done():
		return process.Stop()
	default:
		_ = process.Stop()
		return nil
	}
}
