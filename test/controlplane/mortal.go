// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os/exec"
	"runtime"
	"sync"
)

// startMortal starts a program that ends with this process, where the system can do that. It is in a process group of its own:
// Ctrl-C in a terminal is for the caller, who decides what stops when.
func startMortal(command *exec.Cmd) error {
	command.SysProcAttr = mortal()
	return onLastingThread(command.Start)
}

// Run runs a program to its end, or to that of this process.
func Run(command *exec.Cmd) error {
	if err := startMortal(command); err != nil {
		return err
	}
	return command.Wait()
}

// lastingThread takes what is to be done on a thread that lives as long as this process. The kernel takes the end of the thread that
// has started a program for the end of its parent.
var lastingThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

func onLastingThread(do func() error) error {
	done := make(chan error, 1)
	lastingThread() <- func() { done <- do() }
	return <-done
}
