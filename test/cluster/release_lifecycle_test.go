// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// Helm installs the image and the chart in a namespace that enforces "restricted", with Heirloom's own certificate, which also reaches
// webhook configurations that helm replaces. Then every write has its inherited entries, also while Pods are replaced, and no write
// fails, also while a replica hangs, and during the uninstallation, whose hook cleans up everything that Heirloom owns.
func TestHelmUnderAStreamOfAdmissions(t *testing.T) {
	r := newRelease(t, "--set", "uninstall.cleanup=true")
	r.settle()
	s := newStream(t, "stream")
	s.during(r, "nothing happens", func() {})
	s.during(r, "helm upgrade", func() {
		before := r.pods()
		r.helm(append([]string{"upgrade", "heirloom", r.chart(), "--wait", "--set", "logging.verbosity=1"}, r.values...)...)
		r.settle()
		for _, pod := range before {
			r.Expect(r.pods()).NotTo(ContainElement(HaveField("UID", pod.UID)))
		}
	})
	s.during(r, "the leader is deleted", func() {
		before := r.settle()
		r.Expect(shared.Delete(r.ctx, before)).To(Succeed())
		r.Expect(r.settle().UID).NotTo(Equal(before.UID))
	})
	// The probes alone take a replica that hangs out of the Service and restart it.
	s.withoutFailure(r, "a replica hangs", func() {
		r.Expect(syscall.Kill(r.heirloom(), syscall.SIGSTOP)).To(Succeed())
		r.Eventually(r.endpoints).WithTimeout(patience).WithPolling(polling).Should(Equal(1))
	})
	s.during(r, "the other answers", func() {})
	s.withoutFailure(r, "it is started anew", func() { r.settle() })
	restarts := 0
	for _, pod := range r.pods() {
		restarts += int(pod.Status.ContainerStatuses[0].RestartCount)
	}
	r.Expect(restarts).To(Equal(1))
	s.withoutFailure(r, "helm uninstall", func() { r.helm("uninstall", "heirloom", "--wait") })
	bare := s.withoutFailure(r, "it is gone", func() {})
	r.Expect(bare).NotTo(BeEmpty(), "that it inherits nothing now shows that it was Heirloom that brought it")
	sets := &clusterv1.MachineSetList{}
	r.Expect(shared.List(t.Context(), sets, client.InNamespace("stream"))).To(Succeed())
	r.Expect(sets.Items).NotTo(BeEmpty())
	r.Expect(sets.Items).To(HaveEach(HaveField("ManagedFields", Not(ContainElement(HaveField("Manager", "heirloom"))))))
}

// settle waits until both replicas are ready, the Service has both, one of them is the leader, and no other Pod is left. It returns the
// leader.
func (r *release) settle() (leader *corev1.Pod) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		pods := r.pods()
		g.Expect(pods).To(HaveLen(2))
		g.Expect(pods).To(HaveEach(HaveField("DeletionTimestamp", BeNil())))
		g.Expect(pods).To(HaveEach(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))))
		g.Expect(r.endpoints()).To(Equal(2), "which it does a moment after they are ready")
		leader = r.leader()
		g.Expect(leader).NotTo(BeNil())
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return leader
}

// leader returns the Pod that holds the Lease, or nil.
func (r *release) leader() *corev1.Pod {
	r.t.Helper()
	lease := &coordinationv1.Lease{}
	err := shared.Get(r.ctx, client.ObjectKey{Namespace: stage.Namespace, Name: "leader-election-heirloom"}, lease)
	if err != nil {
		return nil
	}
	for _, pod := range r.pods() {
		if strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), pod.Name+"_") {
			return &pod
		}
	}
	return nil
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
