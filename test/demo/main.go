// SPDX-License-Identifier: Apache-2.0

// Command demo shows Heirloom at work, step by step, on a control plane that it starts on your machine. It checks each of its statements.
// "make demo" builds all programs and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

func main() {
	if err := execute(); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type options struct {
	program string
	keep    bool
	color   bool
}

func execute() error {
	var o options
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.StringVar(&o.program, "heirloom", "bin/heirloom", "path of the heirloom binary to show")
	flags.BoolVar(&o.keep, "keep", false, "leave everything running after the last step, until Ctrl-C")
	flags.BoolVar(&o.color, "color", os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(os.Stdout.Fd())), "print in colour")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, err := os.Stat(o.program); err != nil {
		return fmt.Errorf("bin/heirloom not found: %w (run `make build`)", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.run(ctx)
}

// run returns an error unless every check passed.
func (o options) run(ctx context.Context) (err error) {
	started := time.Now()
	dir, err := os.MkdirTemp("", "heirloom-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for logs and kubeconfigs: %w", err)
	}
	defer func() { err = errors.Join(err, o.cleanUp(dir, err != nil)) }()
	r := &report{color: o.color}
	d, err := setUp(ctx, r, o.program, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.tearDown()) }()
	d.play(ctx)
	verdict := r.verdict(ctx, time.Since(started))
	if o.keep && ctx.Err() == nil {
		d.invite()
		<-ctx.Done()
		fmt.Println()
	}
	return verdict
}

// cleanUp removes the demo's directory, unless you may want to look into it.
func (o options) cleanUp(dir string, failed bool) error {
	if failed || o.keep {
		fmt.Printf("Logs, kubeconfigs and manifests are in %s\n", dir)
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}
