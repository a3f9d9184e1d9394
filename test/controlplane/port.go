// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// claimed is for how long nobody else is given a port: more than any program needs until it listens.
const claimed = 10 * time.Minute

// FreePort returns a TCP port of the loopback interface that nobody listens on right now and that no other test of this user
// has been given lately. It is below the range from which systems choose ports by themselves, so that nobody is given it
// between this call and its use.
func FreePort() (int, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return 0, fmt.Errorf("looking for a place to note ports in use: %w", err)
	}
	claims := filepath.Join(cache, "heirloom", "ports")
	if err := os.MkdirAll(claims, 0o700); err != nil {
		return 0, fmt.Errorf("making a directory for ports in use: %w", err)
	}
	last := errors.New("all are claimed")
	for range 100 {
		port := 20000 + rand.IntN(12000)
		if ok, err := claim(filepath.Join(claims, strconv.Itoa(port))); err != nil {
			return 0, err
		} else if !ok {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("giving a free port back: %w", err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("looking for a free port: %w", last)
}

// claim creates a file, unless it is there already and not old.
func claim(file string) (bool, error) {
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) >= claimed {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("forgetting who had a port: %w", err)
		}
	}
	created, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claiming a port: %w", err)
	}
	return true, created.Close()
}
