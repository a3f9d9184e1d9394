// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// The probes alone take a replica that hangs out of the Service and restart it. No write fails meanwhile.
func TestAReplicaThatHangsIsReplaced(t *testing.T) {
	r := newRelease(t)
	r.settle()
	s := newStream(t, "hanging")
	s.withoutFailure(r, "a replica hangs", func() {
		r.Expect(syscall.Kill(r.heirloom(), syscall.SIGSTOP)).To(Succeed())
		r.Eventually(r.endpoints).WithTimeout(patience).WithPolling(polling).Should(Equal(1))
	})
	s.during(r, "the other answers", func() {})
	s.withoutFailure(r, "it is started anew", func() {
		r.Eventually(r.endpoints).WithTimeout(patience).WithPolling(polling).Should(Equal(2))
	})
	restarts := 0
	for _, pod := range r.pods() {
		for _, container := range pod.Status.ContainerStatuses {
			restarts += int(container.RestartCount)
		}
	}
	r.Expect(restarts).To(Equal(1))
	s.during(r, "both answer", func() {})
}

// endpoints returns the number of ready Pods behind the Service of the webhooks.
func (r *release) endpoints() int {
	r.t.Helper()
	var slices discoveryv1.EndpointSliceList
	r.Expect(shared.List(r.ctx, &slices, client.InNamespace(stage.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: "heirloom-webhook"})).To(Succeed())
	ready := 0
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) {
				ready++
			}
		}
	}
	return ready
}

// heirloom returns the PID of a replica. Only processes of this cluster are visible here.
func (r *release) heirloom() int {
	r.t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	r.Expect(err).NotTo(HaveOccurred())
	for _, command := range commands {
		line, err := os.ReadFile(command)
		if err == nil && bytes.Contains(line, []byte("--webhook-cert-dir=")) { // a process may have ended meanwhile
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(command)))
			r.Expect(err).NotTo(HaveOccurred())
			return pid
		}
	}
	r.t.Fatal("no replica runs here")
	return 0
}
