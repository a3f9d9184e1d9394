// SPDX-License-Identifier: Apache-2.0

// Command demo starts a control plane with Heirloom's chart, and runs demo.sh on it, which shows Heirloom at work and checks each of its
// statements. "make demo" builds all programs and runs it.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// patience is the time limit of each start, also on a busy machine.
const patience = time.Minute

func main() {
	keep := flag.Bool("keep", false, "leave everything running after the last step, until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run returns an error unless every check passed.
func run(ctx context.Context, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "heirloom-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for logs and kubeconfigs: %w", err)
	}
	defer func() {
		if err != nil || keep {
			fmt.Printf("Logs, kubeconfigs and manifests are in %s\n", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	fmt.Print("Heirloom at work: what a MachineDeployment declares reaches MachineSet, Machines and Nodes\n\n")
	d, err := setUp(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, progress("Stopping everything", d.Stop)) }()
	verdict := d.play(ctx)
	if keep && ctx.Err() == nil {
		fmt.Printf("\nEverything is left running until Ctrl-C. In another terminal:\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n"+
			"  kubectl get machinedeployments,machinesets,machines,nodes\n  kubectl get machine worker-1 -o yaml --show-managed-fields\n"+
			"  kubectl taint node worker-1 gpu-\n  tail -f %s\n", d.kubeconfig(), os.Getenv("HEIRLOOM_TOOLS"), d.HeirloomLog())
		<-ctx.Done()
		fmt.Println()
	}
	return verdict
}

// demo is the control plane that the script uses.
type demo struct {
	*stage.Stage
	dir string
}

func (d *demo) kubeconfig() string { return filepath.Join(d.dir, "admin.kubeconfig") }

// setUp starts the control plane and keeps the logs of libraries out of the output.
func setUp(ctx context.Context, dir string) (*demo, error) {
	file, err := os.Create(filepath.Join(dir, "demo.log")) // open for as long as the demo runs
	if err != nil {
		return nil, fmt.Errorf("creating a log file: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file)))
	klog.SetLogger(logger)
	log.SetLogger(logger)
	program, err := controlplane.Built(ctx, "heirloom")
	if err != nil {
		return nil, err
	}
	d := &demo{dir: dir}
	err = progress("Starting etcd and kube-apiserver with Cluster API's CRDs and Heirloom's Helm chart", func() error {
		d.Stage, err = stage.New(ctx, stage.Options{
			Program: program, Dir: dir, WithoutProgram: true, Args: []string{"--management-cluster=default/prod"},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.WriteKubeconfig(d.kubeconfig(), "admin", "system:masters"); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// play runs the script in the demo's directory. The script writes requests to its file descriptor 3 and reads an answer to each from 4.
func (d *demo) play(ctx context.Context) error {
	script, err := filepath.Abs("test/demo/demo.sh")
	if err != nil {
		return fmt.Errorf("locating the script: %w", err)
	}
	requests, asking, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	hearing, answers, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	command := exec.CommandContext(ctx, "bash", script)
	command.Dir, command.Stdout, command.Stderr, command.ExtraFiles = d.dir, os.Stdout, os.Stderr, []*os.File{asking, hearing}
	command.Env = append(os.Environ(), "KUBECONFIG="+d.kubeconfig(), "KUBECACHEDIR="+filepath.Join(d.dir, "kubectl-cache"),
		"PATH="+os.Getenv("HEIRLOOM_TOOLS")+":"+os.Getenv("PATH"))
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) } // so that it stops what it has started
	command.WaitDelay = patience
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the script: %w", err)
	}
	go d.serve(ctx, requests, answers)
	err = errors.Join(asking.Close(), hearing.Close(), command.Wait())
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// serve answers each request with "done" or an error, each on one line.
func (d *demo) serve(ctx context.Context, requests io.Reader, answers io.Writer) {
	for lines := bufio.NewScanner(requests); lines.Scan(); {
		answer := "done"
		if err := d.do(ctx, lines.Text()); err != nil {
			answer = strings.Join(strings.Fields(err.Error()), " ")
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return // the script has ended
		}
	}
}

// do does what kubectl cannot.
func (d *demo) do(ctx context.Context, request string) error {
	switch what, name, _ := strings.Cut(request, " "); what {
	case "stop":
		return progress("Stopping heirloom", d.StopHeirloom)
	case "start":
		return progress("Starting heirloom", func() error {
			ctx, cancel := context.WithCancelCause(ctx) // the program runs until it is done
			timer := time.AfterFunc(patience, func() { cancel(fmt.Errorf("not ready after %s", patience)) })
			defer timer.Stop()
			return cmp.Or(d.StartHeirloom(ctx), context.Cause(ctx))
		})
	case "kubelet":
		kubelet, err := d.StartKubelet(ctx, controlplane.KubeletOptions{Name: name, Dir: d.dir})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err = kubelet.WaitRegistered(ctx)
		return err
	default:
		return fmt.Errorf("the script asks for %q", request)
	}
}

// progress prints the current action, and how long it took.
func progress(what string, do func() error) error {
	fmt.Printf("%s … ", what)
	started := time.Now()
	if err := do(); err != nil {
		fmt.Println("failed")
		return err
	}
	fmt.Printf("%.1f s\n", time.Since(started).Seconds())
	return nil
}
