// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os/exec"
	"runtime"
	"sync"
)

// startMortal starts a program that ends with this process, on systems that can do so. The program has a process group of its own:
// Ctrl-C in a terminal goes only to the caller, which decides when to stop it.
func startMortal(command *exec.Cmd) error {
	command.SysProcAttr = mortal()
	return onLastingThread(command.Start)
}

// Run runs a program until it ends or this process ends.
func Run(command *exec.Cmd) error {
	if err := startMortal(command); err != nil {
		return err
	}
	return command.Wait()
}

// lastingThread returns a channel for functions that run on a thread with the lifetime of this process. When the thread that started a
// program ends, the kernel treats it as the end of the program's parent.
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
