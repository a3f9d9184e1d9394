// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// victimVariable turns this test binary into a process that starts a program and waits until it is killed.
const victimVariable = "HEIRLOOM_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir, is := os.LookupEnv(victimVariable); is {
		process, err := controlplane.StartProcess(context.Background(), "/bin/sleep", []string{"300"}, filepath.Join(dir, "log"))
		if err != nil {
			panic(err)
		}
		fmt.Println(process.PID())
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

// WaitReady returns when the server is ready, and does not wait for a program that has ended.
func TestProcessWaitReady(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 || asked > 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	wait := func(seconds string) error {
		process, err := controlplane.StartProcess(t.Context(), "/bin/sleep", []string{seconds}, filepath.Join(t.TempDir(), "log"))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return process.WaitReady(t.Context(), server.URL)
	}
	NewWithT(t).Expect(wait("60")).To(Succeed())
	NewWithT(t).Expect(asked).To(Equal(2))
	NewWithT(t).Expect(wait("0")).To(MatchError(ContainSubstring("ended by itself")))
}

func TestProgramsAreNamedWhenMissing(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	_, err := controlplane.Start(t.Context(), controlplane.Options{})
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("KUBEBUILDER_ASSETS is not set"), ContainSubstring("make test"))))

	t.Setenv("HEIRLOOM_TOOLS", t.TempDir())
	_, _, err = controlplane.Kubectl(t.Context(), "kubeconfig", "version")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("HEIRLOOM_TOOLS has no kubectl")))
}

// Nothing that a test starts outlives the test, even if the test is killed: envtest starts etcd and kube-apiserver with the same script.
func TestProcessEndsWithItsParent(t *testing.T) {
	Expect := NewWithT(t).Expect
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"="+t.TempDir())
	out, err := victim.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(victim.Start()).To(Succeed())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	Expect(err).NotTo(HaveOccurred())
	Expect(syscall.Kill(pid, 0)).To(Succeed(), "the program runs")
	Expect(victim.Process.Kill()).To(Succeed())
	Expect(victim.Wait()).NotTo(Succeed())
	NewWithT(t).Eventually(func() error { return syscall.Kill(pid, 0) }).WithTimeout(time.Minute).Should(MatchError(syscall.ESRCH))
}
