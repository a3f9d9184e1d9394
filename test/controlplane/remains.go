// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// TempDir creates a directory that does not outlive this process, even if the process is killed. A caller may remove it earlier.
func TempDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", fmt.Errorf("making a directory for temporary files: %w", err)
	}
	return dir, leave("dir", dir)
}

// will removes files after the end of this process: a shell waits for the end and removes them.
type will struct {
	mu    sync.Mutex
	shell io.Writer // nil before the first call of leave
}

var lastWill will

// The shell reads one line for each thing to remove: a directory, or the log of a kubelet with the paths of its files. It tries a
// directory several times: programs that are being killed may still write into it.
const executor = `
trap '' INT TERM HUP
while IFS= read -r line; do set -- "$@" "$line"; done
for line; do
	case $line in
	log\ *) grep -oE '` + kubeletFiles + `' "${line#log }" | xargs rm -rf ;;
	esac
done 2>/dev/null
for line; do
	case $line in
	dir\ *) for try in 1 2 3 4 5 6 7 8 9; do rm -rf "${line#dir }" && break; sleep 0.1; done ;;
	esac
done 2>/dev/null
`

// leave adds a line to the will: what is dir or log, path its path.
func leave(what, path string) error {
	w := &lastWill
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shell == nil {
		command := exec.Command("/bin/sh", "-c", executor)
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not end it
		pipe, err := command.StdinPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			return fmt.Errorf("starting what removes temporary files: %w", err)
		}
		w.shell = pipe
	}
	if _, err := fmt.Fprintf(w.shell, "%s %s\n", what, path); err != nil {
		return fmt.Errorf("noting what is to be removed: %w", err)
	}
	return nil
}
