// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Without rights the caches are never filled. The program then is alive and not ready, and ends when it is told to.
func TestStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, loop)
	kubeconfig, log := filepath.Join(s.dir, "nobody.kubeconfig"), filepath.Join(s.dir, "nobody.log")
	s.Expect(s.WriteKubeconfig(kubeconfig, "nobody")).To(Succeed())
	for _, leaderElection := range []string{"--leader-elect=false", "--leader-elect=true"} {
		t.Run(leaderElection, func(t *testing.T) {
			s := s.in(t)
			health, webhook := s.freePort(), s.freePort()
			process, err := controlplane.StartProcess(s.ctx, program, []string{
				"--kubeconfig=" + kubeconfig, "--webhook-cert-dir=" + s.Dir(), "--diagnostics-address=0",
				fmt.Sprintf("--webhook-port=%d", webhook), fmt.Sprintf("--health-addr=127.0.0.1:%d", health),
				"--leader-elect-namespace=" + stage.Namespace, leaderElection,
			}, log)
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(process.WaitReady(s.ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", health))).To(Succeed())
			s.Eventually(func() string { return s.read(log) }).WithTimeout(patience).WithPolling(polling).
				Should(ContainSubstring("is forbidden"), "the caches cannot be filled")
			briefly, cancel := context.WithTimeout(s.ctx, 2*time.Second)
			defer cancel()
			s.Expect(process.WaitReady(briefly, fmt.Sprintf("http://127.0.0.1:%d/readyz", health))).NotTo(Succeed())

			told := time.Now()
			s.Expect(process.Stop()).To(Succeed(), "log: %s", s.read(log))
			s.Expect(time.Since(told)).To(BeNumerically("<", 8*time.Second), "the chart gives it 10 seconds in all")
		})
	}
}

// An admission request that has begun is answered as any other, also when the program is told to end meanwhile.
func TestRequestsAreFinished(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, loop)
	f := s.settle(s.own("finished"), declared())
	replica, err := s.StartReplica(s.ctx, f.m.Name)
	s.Expect(err).NotTo(HaveOccurred())
	log := filepath.Join(s.Dir(), f.m.Name+".log")
	bare := stage.Machine(f.ms, "bare")
	inherits := ContainSubstring(`"team":"ml"`)
	s.Eventually(func() string { return string(s.review(replica.WebhookURL+"/mutate/machines", bare).Patch) }).
		WithTimeout(patience).Should(inherits, "its cache may be a moment behind")

	body := s.reviewOf(bare)
	connection, err := tls.Dial("tcp", strings.TrimPrefix(replica.WebhookURL, "https://"), &tls.Config{InsecureSkipVerify: true})
	s.Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	answers := bufio.NewReader(connection)
	_, err = fmt.Fprintf(connection, "POST /mutate/machines HTTP/1.1\r\nHost: heirloom\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	s.Expect(err).NotTo(HaveOccurred())
	begun, err := http.ReadResponse(answers, nil)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(begun.StatusCode).To(Equal(http.StatusContinue), "it has asked for the body: what has not begun is dropped")
	s.Expect(begun.Body.Close()).To(Succeed())
	_, err = connection.Write(body[:len(body)/2])
	s.Expect(err).NotTo(HaveOccurred())

	stopped := make(chan error, 1)
	go func() { stopped <- replica.Stop() }()
	s.Eventually(func() string { return s.read(log) }).WithTimeout(patience).Should(ContainSubstring(`"shutting down server" name="webhooks"`))
	s.Expect(stopped).NotTo(Receive())
	_, err = connection.Write(body[len(body)/2:])
	s.Expect(err).NotTo(HaveOccurred())
	response, err := http.ReadResponse(answers, nil)
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	var review admissionv1.AdmissionReview
	s.Expect(json.NewDecoder(response.Body).Decode(&review)).To(Succeed())
	s.Expect(string(review.Response.Patch)).To(inherits)
	s.Expect(connection.Close()).To(Succeed())
	s.Eventually(stopped).WithTimeout(patience).Should(Receive(BeNil()))
	expectNoRace(t, tail{path: log})
}
