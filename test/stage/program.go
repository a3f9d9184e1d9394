// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// program is one process of Heirloom.
type program struct {
	// Heirloom is the running process; nil before the start and after the stop.
	Heirloom *controlplane.Process
	// WebhookURL, WorkloadURL, HealthURL and MetricsURL are the URLs that the program serves.
	WebhookURL, WorkloadURL, HealthURL, MetricsURL string

	binary    string
	arguments []string // of the process, with env, each NAME=value
	env       []string
	log       string
}

// Replica is another process of Heirloom, with the same rights and the same certificate as the stage's own process.
type Replica struct{ *program }

// StartReplica starts another process with additional arguments and waits until it is ready.
func (s *Stage) StartReplica(ctx context.Context, name string, args ...string) (*Replica, error) {
	p, err := s.newProgram(name, args)
	if err != nil {
		return nil, err
	}
	return &Replica{p}, p.StartHeirloom(ctx)
}

// Stop stops the replica.
func (r *Replica) Stop() error { return r.StopHeirloom() }

// newProgram chooses the ports of a program and returns it without starting it.
func (s *Stage) newProgram(name string, args []string) (*program, error) {
	ports, err := controlplane.FreePorts(4)
	if err != nil {
		return nil, err
	}
	host := cmp.Or(s.options.Host, "127.0.0.1")
	if s.options.WorkloadWebhook {
		args = slices.Concat(args, []string{
			fmt.Sprintf("--workload-webhook-url=https://%s:%d", host, ports[3]),
			fmt.Sprintf("--workload-webhook-port=%d", ports[3]),
			"--workload-webhook-key-secret=" + Namespace + "/heirloom-workload-webhook",
		})
	}
	return &program{
		WebhookURL:  fmt.Sprintf("https://%s:%d", host, ports[0]),
		WorkloadURL: fmt.Sprintf("https://%s:%d", host, ports[3]),
		HealthURL:   fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		MetricsURL:  fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[2]),
		binary:      s.options.Program,
		log:         filepath.Join(s.options.Dir, name+".log"),
		env:         s.options.Env,
		arguments: slices.Concat([]string{
			"--kubeconfig=" + s.kubeconfig(),
			"--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", ports[0]), "--webhook-cert-dir=" + s.options.Dir,
			fmt.Sprintf("--health-addr=127.0.0.1:%d", ports[1]),
			fmt.Sprintf("--diagnostics-address=127.0.0.1:%d", ports[2]), "--insecure-diagnostics",
			"--leader-elect", "--leader-elect-namespace=" + Namespace, "-v=2",
			// On a busy machine, renewing the Lease may take longer than the default duration, and a leader that loses it exits.
			"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s",
			"--management-cluster=" + Home + "/" + Home,
		}, args),
	}, nil
}

// StartHeirloom starts the program and waits until it is ready.
func (p *program) StartHeirloom(ctx context.Context) error {
	process, err := controlplane.StartProcess(ctx, p.binary, p.arguments, p.log, p.env...)
	if err != nil {
		return err
	}
	if err := process.WaitReady(ctx, p.HealthURL+"/readyz"); err != nil {
		return errors.Join(err, process.Stop())
	}
	p.Heirloom = process
	return nil
}

// StopHeirloom stops only the program, if it runs.
func (p *program) StopHeirloom() error {
	if p == nil || p.Heirloom == nil {
		return nil
	}
	process := p.Heirloom
	p.Heirloom = nil
	return process.Stop()
}

// HeirloomLog returns the path of the program's log.
func (p *program) HeirloomLog() string {
	return p.log
}

// Metrics returns the metrics that a program serves at a URL.
func Metrics(ctx context.Context, url string) (string, error) {
	return controlplane.Get(ctx, url)
}
