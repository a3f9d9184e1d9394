// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// demo has the state that the steps share.
type demo struct {
	*report
	dir   string
	stage *stage.Stage
	// nodes has all stored versions of all Nodes.
	nodes *controlplane.Recorder
	// declared has the declarations of the MachineDeployment.
	declared declared
}

// step is a step of the demo.
type step struct {
	title string
	play  func(*demo, context.Context) error
	// needed says that the later steps make no sense without this step.
	needed bool
}

func steps() []step {
	return []step{
		{"MachineSet and Machines inherit in the write that creates them", (*demo).children, true},
		{"Nodes have their taints from the first moment", (*demo).registration, true},
		{"An Always taint cannot be removed by accident", (*demo).always, false},
		{"A Node gets an OnInitialization taint once; after you remove it, it stays away", (*demo).initialize, false},
		{"A reserved taint is rejected where you declare it", (*demo).reserved, false},
		{"What you no longer declare disappears; what others set stays", (*demo).removal, false},
		{"The fleet works without Heirloom, and Heirloom then repairs what it missed", (*demo).outage, false},
	}
}

// play runs the steps. A step that cannot be finished counts as a failed check.
func (d *demo) play(ctx context.Context) {
	for _, s := range steps() {
		d.headline(s.title)
		err := s.play(d, ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.check("This step could be finished", err.Error())
			if s.needed {
				return
			}
		}
	}
}

// setUp starts everything that the steps need.
func setUp(ctx context.Context, r *report, program, dir string) (*demo, error) {
	d := &demo{report: r, dir: dir}
	if err := d.divertLogs(); err != nil {
		return nil, err
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, fmt.Errorf("locating heirloom: %w", err)
	}
	fmt.Print("Heirloom at work: what a MachineDeployment declares reaches MachineSet, Machines and Nodes\n\n")
	err = progress("Starting etcd and kube-apiserver with Cluster API's CRDs and Heirloom's Helm chart", func() error {
		d.stage, err = stage.New(ctx, stage.Options{
			Program: program, Dir: dir, WithoutProgram: true, Args: []string{"--management-cluster=default/prod"},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.begin(ctx); err != nil {
		return nil, errors.Join(err, d.tearDown())
	}
	d.say("These are the real programs. heirloom runs as a process with the rights that its chart grants. Cluster API's " +
		"controllers do not run: the demo creates a bare MachineSet and bare Machines in their place, so that everything " +
		"else on them comes from Heirloom. The manifests are in test/demo/manifests.")
	return d, nil
}

func (d *demo) begin(ctx context.Context) error {
	if err := d.startHeirloom(ctx); err != nil {
		return err
	}
	if err := d.stage.WriteKubeconfig(d.kubeconfig(), "admin", "system:masters"); err != nil {
		return err
	}
	var err error
	d.nodes, err = controlplane.RecordVersions(ctx, d.stage.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	return err
}

// startHeirloom starts the program; if it does not become ready, the end of its log is shown.
func (d *demo) startHeirloom(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // the program runs until it is done
	timer := time.AfterFunc(2*patience, cancel)
	defer timer.Stop()
	err := progress("Starting heirloom", func() error { return d.stage.StartHeirloom(ctx) })
	if err != nil {
		cancel()
		fmt.Println("The end of its log:")
		d.output(tail(d.stage.HeirloomLog(), 20))
	}
	return err
}

// divertLogs keeps the logs of libraries out of the output.
func (d *demo) divertLogs() error {
	file, err := os.Create(filepath.Join(d.dir, "demo.log")) // open for as long as the demo runs
	if err != nil {
		return fmt.Errorf("creating a log file: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file)))
	klog.SetLogger(logger)
	log.SetLogger(logger)
	return nil
}

// tearDown stops everything that setUp and the steps have started.
func (d *demo) tearDown() error {
	return progress("Stopping everything", func() error {
		var err error
		if d.nodes != nil {
			err = d.nodes.Stop()
		}
		return errors.Join(err, d.stage.Stop())
	})
}

// invite prints how to look around.
func (d *demo) invite() {
	fmt.Printf(`
Everything is left running until Ctrl-C. In another terminal:

  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get machinedeployments,machinesets,machines,nodes
  kubectl get machine worker-1 -o yaml --show-managed-fields
  kubectl taint node worker-1 gpu-
  tail -f %s
`, d.kubeconfig(), os.Getenv("HEIRLOOM_TOOLS"), d.stage.HeirloomLog())
}

// tail returns the last lines of a file, or the error.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
