// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const noneWaits = "no_execute_waiting_nodes 0"

// oneWaits is a loop with a workload cluster of two Nodes, of which one waits for a taint that evicts Pods, and its API server.
func oneWaits(t *testing.T) (*loop, client.Client) {
	t.Helper()
	l := newLoop(t, theCluster(), machineDeployment(), machineSet(), evicting("n0", "MachineSet/ms"), evicting("n1", "MachineSet/ms"))
	l.NoExecuteRate, l.Admission.Changes = 1, l.admissions
	server := l.connect("c", node("n0"), node("n1"))
	for _, name := range []string{"n0", "n1"} {
		_, err := l.seeNode(key("c"), name)
		l.Expect(err).NotTo(HaveOccurred())
	}
	l.counted("no_execute_waiting_nodes 1")
	return l, server
}

func TestNodesOfAClusterThatIsGoneAreForgotten(t *testing.T) {
	l, _ := oneWaits(t)
	l.Expect(l.server.Delete(t.Context(), theCluster())).To(Succeed())
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.counted(noneWaits)
}

// No event tells of a Node that was deleted while there was no connection. As long as there is one, events do.
func TestNodesThatWentWithoutAWordAreForgotten(t *testing.T) {
	l, server := oneWaits(t)
	l.workloads.caches[key("c")] = newInformers(l.server.Scheme())
	l.start()
	l.Expect(server.Delete(t.Context(), node("n1"))).To(Succeed())
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.eventually(func() []string { return samplesOf(t, l.registry) }).Should(ContainElement(noneWaits))
}
