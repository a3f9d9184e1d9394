// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// dirVariable names the directory of a run. Only the process in its own namespaces can see its contents.
const dirVariable = "HEIRLOOM_CLUSTER_DIR"

// Missing returns what this machine lacks to run a cluster, or "".
func Missing() string {
	if os.Geteuid() != 0 {
		return "a cluster needs root"
	}
	for _, name := range []string{"containerd", "ctr", "runc", "iptables", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			return "a cluster needs " + name + ", which test/cluster/prepare.sh installs where apt-get can"
		}
	}
	if _, err := os.Stat(filepath.Join(pluginDir, "bridge")); err != nil {
		return "a cluster needs " + filepath.Join(pluginDir, "bridge") + ", of the package containernetworking-plugins"
	}
	// Root in a container may lack the right.
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = namespaces()
	if err := probe.Run(); err != nil {
		return fmt.Sprintf("a cluster needs the right to make Linux namespaces: %v", err)
	}
	return ""
}

// namespaces requests new namespaces for processes, mounts and networks. Mounts inside are invisible outside.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:    syscall.SIGKILL,
	}
}

// Main is for TestMain. It runs this program once more in its own namespaces, calls run there, and returns its exit code, or 1 if
// anything is left of the run. Where a cluster cannot run, it only calls run.
func Main(run func() int) int {
	if dir := os.Getenv(dirVariable); dir != "" {
		if err := settle(dir); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: preparing the namespaces:", err)
			return 1
		}
		return run()
	}
	if Missing() != "" {
		return run()
	}
	code, err := runApart()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return code
}

func runApart() (code int, err error) {
	dir, err := os.MkdirTemp("", "heirloom-cluster-")
	if err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The kernel ends the child with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	child.Args[0] = os.Args[0]
	// No proxy of this machine can be reached.
	child.Env = append(os.Environ(), dirVariable+"="+dir, "TMPDIR="+dir, "NO_PROXY=*")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = namespaces()
	if err := child.Start(); err != nil {
		return 0, errors.Join(fmt.Errorf("making namespaces: %w", err), os.Remove(dir))
	}
	waitErr := child.Wait()
	if exit := (*exec.ExitError)(nil); waitErr != nil && !errors.As(waitErr, &exit) {
		err = waitErr
	}
	return child.ProcessState.ExitCode(), errors.Join(err, sweep(dir))
}

// sweep removes the leftovers that the kernel keeps: empty control groups and an empty directory. It fails if a process or a mount is left,
// because then these are busy.
func sweep(dir string) error {
	errs := []error{os.Remove(dir)}
	groups, err := controlGroups(dir)
	errs = append(errs, err)
	for _, group := range slices.Backward(groups) { // children before their parents
		errs = append(errs, os.Remove(group))
	}
	return errors.Join(errs...)
}
