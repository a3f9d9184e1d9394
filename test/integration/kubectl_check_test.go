// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/check"
)

// testKubectlCheck repairs everything that it breaks.
func testKubectlCheck(t *testing.T, w *kubectlWorld) {
	// The program has its serving certificate in files here, which the plugin cannot read.
	well := map[string]check.Status{
		"installed": check.OK, "versions": check.OK, "registered": check.OK, "certificates": check.Unknown, "mutation": check.OK, "validation": check.OK,
		"cluster-api": check.OK, "workload-clusters": check.OK, "nodes": check.Warning, "machines": check.OK, "others": check.OK,
	}
	t.Run("all is well", func(t *testing.T) {
		w := w.in(t)
		before := w.countMachines()
		found := w.checks(t, 0, well, nil)
		w.Expect(found["nodes"].Message).To(Equal("6 of 8 Nodes are as declared."))
		w.Expect(found["nodes"].Details).To(ConsistOf(
			And(HavePrefix("fleet/edge: no Machine matches"), HaveSuffix(": edge-stranger")),
			And(HavePrefix("fleet/prod: no Machine matches"), HaveSuffix(": prod-stranger")),
		))
		out, stderr, code := w.kubectl(t, "check", "--wait=1m")
		w.Expect(code).To(BeZero(), stderr)
		w.Expect(out).To(ContainSubstring("\n9 ok, 1 warning, 1 unknown\n"))
		w.Expect(stderr).NotTo(ContainSubstring("Warning"), "the plugin hides the warnings that its dry runs cause")
		w.Expect(w.countMachines()).To(Equal(before), "a dry run stores nothing")
	})
	t.Run("a user without rights", func(t *testing.T) {
		w := w.in(t)
		out, stderr, code := w.run(t, pluginRun{args: []string{"check"}, kubeconfig: w.kubeconfigOf(t, "nobody")})
		w.Expect(code).To(Equal(2), out)
		w.Expect(out).To(ContainSubstring(`User "nobody" cannot`))
		w.Expect(stderr).To(ContainSubstring("nothing could be checked"))
	})
	t.Run("a program that has stopped", func(t *testing.T) {
		w := w.in(t)
		w.Expect(w.StopHeirloom()).To(Succeed())
		defer func() { w.Expect(w.StartHeirloom(w.ctx)).To(Succeed()) }()
		w.checks(t, 1, well, map[string]check.Status{
			"installed": check.Failed, "mutation": check.Failed, "validation": check.Failed,
		})
	})
}

// checks runs all checks and expects the usual statuses, except for the statuses in apartFrom.
func (w *kubectlWorld) checks(t *testing.T, exitCode int, usual, apartFrom map[string]check.Status) map[string]check.Result {
	t.Helper()
	out, stderr, code := w.kubectl(t, "check", "-o", "json")
	w.Expect(code).To(Equal(exitCode), stderr)
	report := &check.Report{}
	w.Expect(json.Unmarshal([]byte(out), report)).To(Succeed())
	w.Expect(report.Kind).To(Equal("CheckReport"))
	want := maps.Clone(usual)
	maps.Copy(want, apartFrom)
	found := map[string]check.Result{}
	statuses := map[string]check.Status{}
	for _, one := range report.Checks {
		found[one.Name], statuses[one.Name] = one, one.Status
	}
	w.Expect(statuses).To(Equal(want), out)
	return found
}

func (w *kubectlWorld) countMachines() int {
	w.t.Helper()
	machines := &clusterv1.MachineList{}
	w.Expect(w.Client.List(w.ctx, machines)).To(Succeed())
	return len(machines.Items)
}
