// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

const machineDeployment = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: default}
spec:
  clusterName: c
  template:
    metadata:
      labels: {node.cluster.x-k8s.io/team: ml}
`

func TestAMachineDeploymentReachesItsNodes(t *testing.T) {
	result := small().answer(t, machineDeployment)
	expectGolden(t, "machinedeployment", printed(t, result, false))
	expectGolden(t, "machinedeployment-show-all", printed(t, result, true))
}

func TestNothingIsWritten(t *testing.T) {
	w := small()
	from := w.snapshot(t)
	before, err := w.ask(t, from)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	_, err = w.ask(t, w.snapshot(t), machineDeployment)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(lines(before)).To(BeEmpty())
}
