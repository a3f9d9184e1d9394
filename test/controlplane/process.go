// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	stopGrace    = 20 * time.Second // between SIGTERM and SIGKILL
	pollInterval = 50 * time.Millisecond
)

// Process is a program that runs until it is stopped.
type Process struct {
	name string
	pid  int
	stop context.CancelFunc
	done chan struct{}
	err  error // the reason of the end; valid after done is closed
}

// StartProcess starts a program and appends its output to a log file. Its environment is the environment of this process with the
// variables in env, each NAME=value. It stops when ctx is done, or with Stop. On Linux it does not outlive this process.
func StartProcess(ctx context.Context, path string, args []string, logFile string, env ...string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log file: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopGrace
	if err := startMortal(command); err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("starting %s: %w", path, err), log.Close())
	}
	p := &Process{name: filepath.Base(path), pid: command.Process.Pid, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		err := command.Wait()
		p.err = p.verdict(command.ProcessState, ctx.Err() != nil, err)
		if p.err != nil {
			p.err = fmt.Errorf("%w (its log is %s)", p.err, logFile)
		}
		p.err = errors.Join(p.err, log.Close())
	}()
	return p, nil
}

// verdict returns nil if the program was asked to end and ended cleanly, and an error for every other end.
func (p *Process) verdict(state *os.ProcessState, asked bool, err error) error {
	if !asked {
		if err == nil {
			return fmt.Errorf("%s ended by itself", p.name)
		}
		return fmt.Errorf("%s ended by itself: %w", p.name, err)
	}
	if state.Success() {
		return nil
	}
	// SIGTERM kills a program without a handler. This end is clean also.
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
		return nil
	}
	return fmt.Errorf("%s did not stop cleanly: %s", p.name, state)
}

// Stop sends SIGTERM, and SIGKILL after 20 seconds, and waits for the end. Every call returns an error if the program had ended by
// itself before or did not end cleanly.
func (p *Process) Stop() error {
	p.stop()
	<-p.done
	return p.err
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-p.done
	p.stop()
	return nil
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} {
	return p.done
}

// WaitReady polls an http URL until the status is 200. It gives up when ctx is done or the program has ended.
func (p *Process) WaitReady(ctx context.Context, url string) error {
	return p.waitAnswer(ctx, http.DefaultClient, url)
}

func (p *Process) waitAnswer(ctx context.Context, c *http.Client, url string) error {
	return p.wait(ctx, "answering 200 at "+url, func(ctx context.Context) error { return answers(ctx, c, url) })
}

// wait calls a check until it returns no error, the program has ended or ctx is done. Each call has a limit of ten seconds.
func (p *Process) wait(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, p.err
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := check(ctx)
		if last == nil || err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			last = err // more useful than the error of a deadline
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && last != nil:
		return fmt.Errorf("waiting for %s, %s: %w", p.name, what, last)
	default:
		return fmt.Errorf("waiting for %s, %s: %w", p.name, what, err)
	}
}

// PID returns the process ID.
func (p *Process) PID() int { return p.pid }
