// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// victimVariable turns this test binary into a process that starts a program and waits until it is killed. The program writes to the
// named pipe in the variable.
const victimVariable = "HEIRLOOM_TEST_VICTIM"

func TestMain(m *testing.M) {
	if pipe, is := os.LookupEnv(victimVariable); is {
		process, err := controlplane.StartProcess(context.Background(), "/bin/sh", []string{"-c", `exec sleep 300 >"$0"`, pipe}, pipe+".log")
		if err != nil {
			panic(err)
		}
		fmt.Println("started")
		<-process.Done()
	}
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		err    string // of Stop; empty: none
	}{
		"dies of SIGTERM":              {script: "echo $WORD; exec sleep 60"},
		"handles SIGTERM":              {script: "trap 'exit 0' TERM; echo $WORD; while :; do sleep 0.01; done"},
		"answers SIGTERM with a fault": {script: "trap 'exit 3' TERM; echo $WORD; while :; do sleep 0.01; done", err: "exit status 3"},
		"has failed before":            {script: "echo $WORD; exit 4", err: "ended by itself: exit status 4"},
		"has ended before":             {script: "echo $WORD", err: "ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			log := filepath.Join(t.TempDir(), "log")
			process, err := controlplane.StartProcess(t.Context(), "/bin/sh", []string{"-c", test.script}, log, "WORD=up")
			Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Eventually(os.ReadFile).WithArguments(log).WithTimeout(time.Minute).Should(BeEquivalentTo("up\n"))
			if strings.Contains(test.err, "by itself") {
				<-process.Done()
			}
			for range 2 {
				if test.err == "" {
					Expect(process.Stop()).To(Succeed())
				} else {
					Expect(process.Stop()).To(MatchError(And(ContainSubstring(test.err), ContainSubstring(log))))
				}
			}
		})
	}
}

// A program ends with the process that has started it, even if this process is killed. envtest starts etcd and kube-apiserver with the same
// script.
func TestProgramsEndWithTheirParent(t *testing.T) {
	Expect := NewWithT(t).Expect
	path := filepath.Join(t.TempDir(), "pipe")
	Expect(syscall.Mkfifo(path, 0o600)).To(Succeed())
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"="+path)
	out, err := victim.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(victim.Start()).To(Succeed())
	t.Cleanup(func() { _ = victim.Process.Kill() }) // it may have ended
	_, err = fmt.Fscanln(out, new(string))
	Expect(err).NotTo(HaveOccurred())
	pipe, err := os.Open(path) // waits until the program runs
	Expect(err).NotTo(HaveOccurred())
	defer pipe.Close()
	Expect(victim.Process.Kill()).To(Succeed())
	Expect(victim.Wait()).NotTo(Succeed())
	Expect(pipe.SetReadDeadline(time.Now().Add(time.Minute))).To(Succeed())
	Expect(io.ReadAll(pipe)).To(BeEmpty(), "the end of the program closes the pipe")
}
