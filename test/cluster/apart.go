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
	own, err := namespacesOf(child.Process.Pid)
	if err != nil {
		return 0, errors.Join(err, child.Process.Kill(), child.Wait(), os.Remove(dir))
	}
	waitErr := child.Wait()
	if exit := (*exec.ExitError)(nil); waitErr != nil && !errors.As(waitErr, &exit) {
		err = waitErr
	}
	return child.ProcessState.ExitCode(), errors.Join(err, sweep(dir), nothingLeft(dir, own))
}

// namespacesOf returns the namespaces of a process that differ from the namespaces of this process.
func namespacesOf(pid int) ([]string, error) {
	var own []string
	for _, kind := range []string{"pid_for_children", "mnt", "net"} {
		there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return nil, fmt.Errorf("looking for the namespaces of the test: %w", err)
		}
		here, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return nil, fmt.Errorf("looking for the namespaces of this process: %w", err)
		}
		if here == there {
			return nil, fmt.Errorf("the test is not in a namespace %s of its own", kind)
		}
		own = append(own, there)
	}
	return own, nil
}

// sweep removes the leftovers that the kernel keeps: empty control groups and an empty directory.
func sweep(dir string) error {
	errs := []error{os.Remove(dir)}
	groups, err := controlGroups(dir)
	errs = append(errs, err)
	for _, group := range slices.Backward(groups) { // children before their parents
		errs = append(errs, os.Remove(group))
	}
	return errors.Join(errs...)
}

// nothingLeft returns an error for each process, mount and control group that is left of a run.
func nothingLeft(dir string, namespaces []string) error {
	var errs []error
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	errs = append(errs, err)
	for _, link := range links {
		// A process that has ended meanwhile has no namespaces.
		if namespace, err := os.Readlink(link); err == nil && slices.Contains(namespaces, namespace) {
			errs = append(errs, fmt.Errorf("a process is left: %s is %s", link, namespace))
		}
	}
	groups, err := controlGroups(dir)
	errs = append(errs, err)
	for _, group := range groups {
		errs = append(errs, fmt.Errorf("a control group is left: %s", group))
	}
	return errors.Join(append(errs, noMountLeft(dir))...)
}
