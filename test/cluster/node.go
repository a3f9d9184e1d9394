// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	pollInterval = 100 * time.Millisecond
	patience     = time.Minute
)

// startContainerd starts containerd and imports the images.
func (c *Cluster) startContainerd(ctx context.Context, options Options) error {
	if err := writeConfig(c.dir); err != nil {
		return err
	}
	path, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	if err := c.startProcess(ctx, path, "--config="+c.path("containerd.toml")); err != nil {
		return err
	}
	if err := waitForContainerd(ctx); err != nil {
		return err
	}
	pause, err := buildPauseImage(ctx, c.dir)
	if err != nil {
		return err
	}
	if _, err := importImage(ctx, pause); err != nil {
		return err
	}
	c.Image, err = importImage(ctx, options.Image)
	return err
}

func waitForContainerd(ctx context.Context) error {
	var out []byte
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		out, err = exec.CommandContext(ctx, "ctr", "version").CombinedOutput()
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for containerd: %w: %s", err, out)
	}
	return nil
}

// PodKubeconfig returns an administrator's kubeconfig with an address of the API server that Pods can also reach.
func (c *Cluster) PodKubeconfig() ([]byte, error) {
	raw, err := c.ControlPlane.Kubeconfig("pods", "system:masters")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	ca, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the CA of the API server: %w", err)
	}
	for _, cluster := range kubeconfig.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			return nil, fmt.Errorf("reading the address of the API server: %w", err)
		}
		cluster.Server, cluster.CertificateAuthorityData = "https://"+net.JoinHostPort(nodeAddress, server.Port()), ca
	}
	return clientcmd.Write(*kubeconfig)
}

// startNode starts kube-proxy and the kubelet.
func (c *Cluster) startNode(ctx context.Context, _ Options) error {
	// The limits of connection tracking belong to the machine.
	err := c.start(ctx, "kube-proxy", "system:kube-proxy", "--proxy-mode=iptables", "--hostname-override="+NodeName,
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	if err != nil {
		return err
	}
	if err := c.WriteKubeconfig(c.path("kubelet.kubeconfig"), "system:node:"+NodeName, "system:nodes"); err != nil {
		return err
	}
	return c.startKubelet(ctx)
}

// RestartKubelet stops the kubelet and starts it again. Its containers go on.
func (c *Cluster) RestartKubelet(ctx context.Context) error {
	last := len(c.processes) - 1
	if err := stop(c.processes[last]); err != nil {
		return err
	}
	c.processes = c.processes[:last]
	return c.startKubelet(ctx)
}

func (c *Cluster) startKubelet(ctx context.Context) error {
	path, err := controlplane.NodeProgram("kubelet")
	if err != nil {
		return err
	}
	return c.startProcess(ctx, path,
		"--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.path("kubelet.kubeconfig"),
		"--hostname-override="+NodeName, "--node-ip="+nodeAddress)
}
