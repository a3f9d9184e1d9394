// SPDX-License-Identifier: Apache-2.0

// Command fleet runs Cluster API's own managers with its in-memory provider, creates Clusters from a ClusterClass, and changes what they
// declare: with Cluster API alone, and then with Heirloom. It prints the time of each change until the last Node has it, and its cost.
// "make fleet" builds all programs and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/stage"
)

func main() {
	if err := execute(); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

type options struct {
	program           string
	clusters, workers int
	alone, keep       bool
}

func execute() error {
	var o options
	flags := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	flags.StringVar(&o.program, "heirloom", "bin/heirloom", "path of the heirloom binary")
	flags.IntVar(&o.clusters, "clusters", 3, "number of Clusters")
	flags.IntVar(&o.workers, "workers", 3, "number of workers of each Cluster, beside its control plane Machine")
	flags.BoolVar(&o.alone, "alone", false, "only Cluster API alone")
	flags.BoolVar(&o.keep, "keep", false, "leave the last fleet running until Ctrl-C")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.clusters < 1 || o.workers < 1 {
		return errors.New("usage: fleet [--clusters N] [--workers N] [--alone] [--keep]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // a client's warnings
	return o.run(ctx)
}

// run plays all changes in each world, and prints the table.
func (o options) run(ctx context.Context) error {
	worlds := []string{withoutHeirloom, withHeirloom}
	if o.alone {
		worlds = worlds[:1]
	}
	results := table{}
	for i, name := range worlds {
		if err := o.play(ctx, name, results, o.keep && i == len(worlds)-1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return results.print(os.Stdout)
}

// play starts a fleet, measures all changes, and stops the fleet.
func (o options) play(ctx context.Context, name string, results table, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "heirloom-fleet-")
	if err != nil {
		return fmt.Errorf("making a directory for logs and kubeconfigs: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			fmt.Println("The logs are in", dir)
		}
	}()
	alone := name == withoutHeirloom
	say("%s: starting etcd, kube-apiserver and Cluster API's managers", name)
	f, err := clusterapi.NewFleet(ctx, stage.Options{
		Program: o.program, Dir: dir, WithoutWebhooks: alone, WithoutProgram: alone, Args: []string{"-v=0"},
	}, clusterapi.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	w := &world{Fleet: f, name: name, options: o, nodes: o.clusters * (o.workers + 1)}
	if err := w.measureAll(ctx, results); err != nil || !keep {
		return err
	}
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	if err := f.WriteKubeconfig(kubeconfig, "admin", "system:masters"); err != nil {
		return err
	}
	if err := results.print(os.Stdout); err != nil {
		return err
	}
	fmt.Printf("The fleet runs until Ctrl-C: kubectl --kubeconfig %s get clusters,machines -A\n", kubeconfig)
	<-ctx.Done()
	return nil
}

// say prints the progress.
func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
