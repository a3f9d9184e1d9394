// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Without rights the caches are never filled. The program then is alive and not ready, and ends when it is told to.
func TestStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutProgram: true})
	kubeconfig, log := filepath.Join(s.dir, "nobody.kubeconfig"), filepath.Join(s.dir, "nobody.log")
	s.Expect(s.WriteKubeconfig(kubeconfig, "nobody")).To(Succeed())
	for _, leaderElection := range []string{"--leader-elect=false", "--leader-elect=true"} {
		t.Run(leaderElection, func(t *testing.T) {
			s := s.in(t)
			health, webhook := s.freePort(), s.freePort()
			process, err := controlplane.StartProcess(s.ctx, program, []string{
				"--kubeconfig=" + kubeconfig, "--webhook-cert-dir=" + s.dir, "--diagnostics-address=0",
				fmt.Sprintf("--webhook-port=%d", webhook), fmt.Sprintf("--health-addr=127.0.0.1:%d", health),
				"--leader-elect-namespace=" + stage.Namespace, leaderElection,
			}, log)
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(process.WaitReady(s.ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", health))).To(Succeed())
			briefly, cancel := context.WithTimeout(s.ctx, 2*time.Second)
			defer cancel()
			s.Expect(process.WaitReady(briefly, fmt.Sprintf("http://127.0.0.1:%d/readyz", health))).NotTo(Succeed())

			told := time.Now()
			s.Expect(process.Stop()).To(Succeed(), "log: %s", s.read(log))
			s.Expect(time.Since(told)).To(BeNumerically("<", 8*time.Second), "the chart gives it 10 seconds in all")
			s.Expect(s.read(log)).To(ContainSubstring("is forbidden"), "it is the caches that could not be filled")
		})
	}
}
