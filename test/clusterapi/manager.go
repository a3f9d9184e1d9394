// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Options are the options of the managers.
type Options struct {
	// Dir is the directory for logs, kubeconfigs and certificates.
	Dir string
	// TaintPropagation is the feature gate MachineTaintPropagation, which is off by default.
	TaintPropagation bool
	// Kubeadm also runs the kubeadm bootstrap manager and the kubeadm control-plane manager.
	Kubeadm bool
	// InMemory also runs the manager of the Docker provider, whose backend "inMemory" makes workload clusters inside of the process. They
	// have the ports from 20000 on, so a machine has room for one such manager.
	InMemory bool
	// Namespace is the only namespace that the controllers watch; empty for all. Webhooks serve all namespaces.
	Namespace string
}

// Managers are Cluster API's running managers.
type Managers struct {
	providers  []provider
	admin      client.Client
	kubeconfig string
	options    Options

	mu      sync.Mutex
	running []running
}

// running is the process of a manager, with the URL of its metrics.
type running struct {
	*controlplane.Process
	name, metrics string
}

// provider is a manager: its name, its program, its environment, and its directory in a module of Cluster API.
type provider struct {
	name, program, dir string
	env                []string
}

// Start starts the managers of the release that go.mod requires, with their webhooks. Its CRDs must be installed.
func Start(ctx context.Context, cp *controlplane.ControlPlane, options Options) (*Managers, error) {
	providers, err := providers(ctx, options)
	if err != nil {
		return nil, err
	}
	admin, err := client.New(cp.AdminConfig(), client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making an administrator's client: %w", err)
	}
	kubeconfig := filepath.Join(options.Dir, "cluster-api.kubeconfig")
	if err := cp.WriteKubeconfig(kubeconfig, "cluster-api", "system:masters"); err != nil {
		return nil, err
	}
	m := &Managers{providers: providers, admin: admin, kubeconfig: kubeconfig, options: options}
	if err := m.startAll(ctx, func(provider) bool { return true }); err != nil {
		return nil, err
	}
	return m, nil
}

// inMemory is the name of the manager that makes workload clusters.
const inMemory = "in-memory"

// providers returns the managers to run.
func providers(ctx context.Context, options Options) ([]provider, error) {
	release, err := controlplane.CAPIModule(ctx)
	if err != nil {
		return nil, err
	}
	all := []provider{{name: "core", dir: filepath.Join(release, "core")}}
	if options.Kubeadm {
		all = append(all,
			provider{name: "kubeadm-bootstrap", dir: filepath.Join(release, "bootstrap", "kubeadm")},
			provider{name: "kubeadm-control-plane", dir: filepath.Join(release, "controlplane", "kubeadm")})
	}
	for i := range all {
		if all[i].program, err = controlplane.ClusterAPIProgram(all[i].name); err != nil {
			return nil, err
		}
	}
	if options.InMemory {
		docker := provider{name: inMemory, env: []string{"POD_IP=127.0.0.1", "DOCKER_HOST=unix:///nonexistent"}}
		if _, docker.dir, docker.program, err = controlplane.DockerProvider(ctx); err != nil {
			return nil, err
		}
		all = append(all, docker)
	}
	return all, nil
}

// Switch restarts the managers with MachineTaintPropagation on or off, as an operator who changes their flags. Until they are ready,
// their webhooks do not answer, and API servers reject all requests for these webhooks. The in-memory provider goes on: its workload
// clusters would be gone.
func (m *Managers) Switch(ctx context.Context, taintPropagation bool) error {
	if err := m.stop(func(r running) bool { return r.name != inMemory }); err != nil {
		return err
	}
	m.options.TaintPropagation = taintPropagation
	return m.startAll(ctx, func(p provider) bool { return p.name != inMemory })
}

// startAll starts these managers at the same time: a start is mostly waiting.
func (m *Managers) startAll(ctx context.Context, which func(provider) bool) error {
	var starts errgroup.Group
	for _, p := range m.providers {
		if which(p) {
			starts.Go(func() error { return m.start(ctx, p) })
		}
	}
	if err := starts.Wait(); err != nil {
		return errors.Join(err, m.Stop())
	}
	return nil
}

// MetricsURLs returns the metrics URLs of the running managers, by name.
func (m *Managers) MetricsURLs() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	urls := map[string]string{}
	for _, r := range m.running {
		urls[r.name] = r.metrics
	}
	return urls
}

// PIDs returns the process IDs of the running managers, by name.
func (m *Managers) PIDs() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	pids := map[string]int{}
	for _, r := range m.running {
		pids[r.name] = r.PID()
	}
	return pids
}

// start starts a manager and installs its webhooks. From then on, the API server rejects requests that they do not answer.
func (m *Managers) start(ctx context.Context, p provider) error {
	certs := filepath.Join(m.options.Dir, p.name)
	if err := os.Mkdir(certs, 0o700); err != nil && !os.IsExist(err) {
		return fmt.Errorf("making a directory for certificates: %w", err)
	}
	ca, err := controlplane.ServingCertificate(certs, "127.0.0.1")
	if err != nil {
		return err
	}
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		return err
	}
	health, diagnostics := fmt.Sprintf("127.0.0.1:%d", ports[1]), fmt.Sprintf("127.0.0.1:%d", ports[2])
	args := []string{
		"--kubeconfig=" + m.kubeconfig, "--leader-elect=false",
		fmt.Sprintf("--webhook-port=%d", ports[0]), "--webhook-cert-dir=" + certs, "--health-addr=" + health,
		"--diagnostics-address=" + diagnostics, "--insecure-diagnostics=true",
		"--feature-gates=" + gates(m.options),
		"--namespace=" + m.options.Namespace,
	}
	server := endpoint{url: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), ca: ca}
	if err := convertAt(ctx, m.admin, filepath.Join(p.dir, "config", "crd", "bases"), server); err != nil {
		return err
	}
	process, err := controlplane.StartProcess(ctx, p.program, args, filepath.Join(m.options.Dir, p.name+".log"), p.env...)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.running = append(m.running, running{process, p.name, "http://" + diagnostics + "/metrics"})
	m.mu.Unlock()
	if err := process.WaitReady(ctx, "http://"+health+"/readyz"); err != nil {
		return err
	}
	objects, err := webhooks(filepath.Join(p.dir, "config", "webhook", "manifests.yaml"), p.name, server)
	if err != nil {
		return err
	}
	return controlplane.Apply(ctx, m.admin, objects)
}

// gates returns the feature gates. They are the same for every manager, because the webhooks of each depend on them.
func gates(options Options) string {
	return fmt.Sprintf("ClusterTopology=true,MachineTaintPropagation=%t", options.TaintPropagation)
}

// Stop stops all managers at the same time.
func (m *Managers) Stop() error { return m.stop(func(running) bool { return true }) }

func (m *Managers) stop(which func(running) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stops := make([]error, len(m.running))
	var all sync.WaitGroup
	var rest []running
	for i, r := range m.running {
		if which(r) {
			all.Go(func() { stops[i] = r.Stop() })
		} else {
			rest = append(rest, r)
		}
	}
	all.Wait()
	m.running = rest
	return errors.Join(stops...)
}
