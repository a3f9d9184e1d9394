// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	nodeAddress = "192.0.2.10" // in a range that no real machine uses
	controlRoot = "/sys/fs/cgroup"
)

// settle prepares the namespaces of this process for a Node.
func settle(dir string) error {
	if err := mountPrivately(dir); err != nil {
		return err
	}
	if err := shieldKernel(dir); err != nil {
		return err
	}
	if err := makeControlGroups(dir); err != nil {
		return err
	}
	return connect()
}

// mountPrivately mounts empty file systems in memory at all places where the Node's programs write, so that they neither see nor change
// files of this machine. /proc must show the processes of these namespaces.
func mountPrivately(dir string) error {
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, path := range []string{dir, "/run", "/var/lib", "/var/log"} {
		if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting a file system in memory over %s: %w", path, err)
		}
	}
	return nil
}

// shieldKernel gives the kubelet copies of the settings that it writes and that belong to the machine, not to a namespace.
func shieldKernel(dir string) error {
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		path := filepath.Join("/proc/sys", setting)
		value, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a kernel setting: %w", err)
		}
		double := filepath.Join(dir, strings.ReplaceAll(setting, "/", "."))
		if err := os.WriteFile(double, value, 0o600); err != nil {
			return fmt.Errorf("copying a kernel setting: %w", err)
		}
		if err := syscall.Mount(double, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("shielding a kernel setting: %w", err)
		}
	}
	return nil
}

// connect gives the Node an interface, its address and a default route, all within this namespace.
func connect() error {
	for _, line := range []string{
		"link set lo up",
		"link add eth0 type veth peer name nowhere",
		"link set nowhere up",
		"link set eth0 up",
		"address add " + nodeAddress + "/24 dev eth0",
		"route add default dev eth0",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// controlGroup returns the control group of all containers of a run, a path below each hierarchy's root.
func controlGroup(dir string) string {
	return "/" + filepath.Base(dir)
}

// makeControlGroups makes the control group of a run in every hierarchy.
func makeControlGroups(dir string) error {
	hierarchies := []string{controlRoot}
	if _, err := os.Stat(filepath.Join(controlRoot, "cgroup.controllers")); err != nil { // version 1
		if hierarchies, err = filepath.Glob(filepath.Join(controlRoot, "*")); err != nil {
			return err
		}
	}
	for _, hierarchy := range hierarchies {
		if err := os.MkdirAll(filepath.Join(hierarchy, controlGroup(dir)), 0o755); err != nil {
			return fmt.Errorf("making a control group: %w", err)
		}
	}
	return nil
}

// controlGroups returns the control groups of a run, in every hierarchy, parents before their children.
func controlGroups(dir string) ([]string, error) {
	var groups []string
	roots := []string{filepath.Join(controlRoot, controlGroup(dir))} // version 2; version 1 has a root for each controller
	more, err := filepath.Glob(filepath.Join(controlRoot, "*", controlGroup(dir)))
	if err != nil {
		return nil, err
	}
	for _, root := range append(roots, more...) {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for control groups: %w", err)
		}
	}
	return groups, nil
}
