// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestProcess(t *testing.T) {
	tests := map[string]struct {
		script string
		err    string // of Stop; empty: none
	}{
		"dies of SIGTERM":              {script: "echo $WORD; exec sleep 60"},
		"handles SIGTERM":              {script: "trap 'exit 0' TERM; echo $WORD; while :; do sleep 0.01; done"},
		"answers SIGTERM with a fault": {script: "trap 'exit 3' TERM; echo $WORD; while :; do sleep 0.01; done", err: "exit status 3"},
		"has failed before":            {script: "echo $WORD; exit 4", err: "ended by itself: exit status 4"},
		"has ended before":             {script: "echo $WORD", err: "ended by itself"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			log := filepath.Join(t.TempDir(), "log")
			process, err := controlplane.StartProcess(t.Context(), "/bin/sh", []string{"-c", test.script}, log, "WORD=up")
			Expect(err).NotTo(HaveOccurred())
			if test.err == "" || test.err == "exit status 3" {
				NewWithT(t).Eventually(os.ReadFile).WithArguments(log).WithTimeout(time.Minute).Should(BeEquivalentTo("up\n"))
			} else {
				NewWithT(t).Eventually(process.Done()).WithTimeout(time.Minute).Should(BeClosed())
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

func TestProcessStopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	process := startSleep(ctx, t, "60")
	cancel()
	NewWithT(t).Eventually(process.Done()).WithTimeout(time.Minute).Should(BeClosed())
	NewWithT(t).Expect(process.Stop()).To(Succeed())
}

func startSleep(ctx context.Context, t *testing.T, seconds string) *controlplane.Process {
	t.Helper()
	process, err := controlplane.StartProcess(ctx, "/bin/sleep", []string{seconds}, filepath.Join(t.TempDir(), "log"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return process
}

func TestProcessWaitReady(t *testing.T) {
	answer := func(t *testing.T, codes ...int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(codes[0])
			codes = codes[min(1, len(codes)-1):]
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	t.Run("after a while", func(t *testing.T) {
		process := startSleep(t.Context(), t, "60")
		url := answer(t, http.StatusServiceUnavailable, http.StatusOK)
		NewWithT(t).Expect(process.WaitReady(t.Context(), url)).To(Succeed())
		NewWithT(t).Expect(process.Stop()).To(Succeed())
	})
	t.Run("not in time", func(t *testing.T) {
		process := startSleep(t.Context(), t, "60")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if answers++; answers == 2 {
				cancel() // the time is over, in the middle of a request
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		defer server.Close()
		err := process.WaitReady(ctx, server.URL)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("503")))
		NewWithT(t).Expect(process.Stop()).To(Succeed())
	})
	t.Run("the program has ended", func(t *testing.T) {
		err := startSleep(t.Context(), t, "0").WaitReady(t.Context(), answer(t, http.StatusServiceUnavailable))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("ended by itself")))
	})
}

func TestProgramsAreNamedWhenMissing(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	_, err := controlplane.Start(t.Context(), controlplane.Options{})
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("KUBEBUILDER_ASSETS is not set"), ContainSubstring("make test"))))

	t.Setenv("HEIRLOOM_TOOLS", t.TempDir())
	_, _, err = controlplane.Kubectl(t.Context(), "kubeconfig", "version")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("HEIRLOOM_TOOLS has no kubectl")))
}
