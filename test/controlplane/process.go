// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	stopGrace    = 20 * time.Second // between SIGTERM and SIGKILL
	pollInterval = 50 * time.Millisecond
)

// watchdog returns a shell script that runs a program until this process ends, in whatever way: neither Go nor envtest can ensure that on
// every system. A SIGTERM to the process group, as from envtest, kills the program at once: kube-apiserver would wait for its clients.
// If this process has been killed, the script removes a directory as well.
func watchdog(directory string) string {
	return fmt.Sprintf(`
(
	trap "kill -9 $$" TERM
	while kill -0 %d && kill -0 $$; do sleep 2 & wait; done
	kill -9 $$ && sleep 1 && rm -rf "%s"
) </dev/null >/dev/null 2>&1 &
exec "$0" "$@"`, os.Getpid(), directory)
}

// Process is a program that runs until it is stopped.
type Process struct {
	name, log string
	command   *exec.Cmd
	stop      context.CancelFunc
	done      chan struct{}
	err       error // the reason of the end; valid after done is closed
}

// StartProcess starts a program and appends its output to a log file. Its environment is the environment of this process with the
// variables in env, each NAME=value. It stops when ctx is done, or with Stop, or when this process ends. It has a process group of its
// own: Ctrl-C in a terminal goes only to this process, which decides when to stop it.
func StartProcess(ctx context.Context, path string, args []string, logFile string, env ...string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log file: %w", err)
	}
	defer func() { _ = log.Close() }() // the program has opened it, too
	ctx, stop := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", watchdog(""), path}, args...)...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopGrace
	if err := command.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &Process{name: filepath.Base(path), log: logFile, command: command, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = command.Wait() // the process state says more
		p.err = p.verdict(ctx.Err() != nil)
	}()
	return p, nil
}

// verdict returns nil if the program was asked to end and ended cleanly, and an error for every other end.
func (p *Process) verdict(asked bool) error {
	state := p.command.ProcessState
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !asked:
		return fmt.Errorf("%s ended by itself: %s (its log is %s)", p.name, state, p.log)
	case state.Success(), ok && status.Signal() == syscall.SIGTERM: // SIGTERM kills a program without a handler
		return nil
	default:
		return fmt.Errorf("%s did not stop cleanly: %s (its log is %s)", p.name, state, p.log)
	}
}

// Stop sends SIGTERM, and SIGKILL after 20 seconds, and waits for the end. Every call returns an error if the program had ended by
// itself before or did not end cleanly.
func (p *Process) Stop() error {
	p.stop()
	<-p.done
	return p.err
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} {
	return p.done
}

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// WaitReady polls an http URL until the status is 200. It gives up when ctx is done or the program has ended.
func (p *Process) WaitReady(ctx context.Context, url string) error {
	return p.wait(ctx, "answering 200 at "+url, func(ctx context.Context) error {
		_, err := Get(ctx, url)
		return err
	})
}

// Get returns the body of the answer to a GET, which must have status 200. It asks for a body without compression, which takes Heirloom
// several times as long as writing its metrics.
func Get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(response.Status))
	}
	return string(body), errors.Join(err, response.Body.Close())
}

// wait calls a check until it returns no error, the program has ended or ctx is done. Each call has a limit of ten seconds.
func (p *Process) wait(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := check(limited)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("waiting for %s, %s: %w", p.name, what, p.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s, %s: %w: %w", p.name, what, ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}
