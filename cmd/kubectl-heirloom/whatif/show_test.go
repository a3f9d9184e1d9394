// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/whatif"
)

// The program gets two directories and those arguments that kubectl diff would pass on; its exit code 1 is no failure.
func TestTheProgramThatComparesIsTheUsers(t *testing.T) {
	Expect := NewWithT(t).Expect
	objects := small().answer(t, machineDeployment).Objects
	script := filepath.Join(t.TempDir(), "compare")
	write := func(text string) { Expect(os.WriteFile(script, []byte("#!/bin/sh\n"+text), 0o700)).To(Succeed()) }

	var out bytes.Buffer
	write(`echo "$1 $#"; ls "$2" | wc -l; ls "$3" | head -n 1; exit 1`)
	Expect(whatif.Program{External: script + " -x ;rm", Out: &out}.Show(t.Context(), objects, true)).To(Succeed())
	Expect(out.String()).To(Equal("-x 3\n11\n0001.MachineDeployment.default.md\n"))

	write("exit 3")
	Expect(whatif.Program{External: script, Out: &out}.Show(t.Context(), objects, true)).To(MatchError(ContainSubstring("exit status 3")))

	err := whatif.Program{External: "no-such-program", Out: &out}.Show(t.Context(), objects, true)
	Expect(err).To(MatchError(ContainSubstring("install it, or name another in KUBECTL_EXTERNAL_DIFF")))
}

func TestTheAnswerForPrograms(t *testing.T) {
	Expect := NewWithT(t).Expect
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(busy().answer(t, declaring("gpu=yes:NoExecute")))
	Expect(err).NotTo(HaveOccurred())
	text, err := json.MarshalIndent(content, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	expectGolden(t, "answer", string(text)+"\n")
}

func TestTheTable(t *testing.T) {
	Expect := NewWithT(t).Expect
	result := small().answer(t, declaring("gpu=yes:NoExecute"))
	row := func(wide bool, i int) []any { return result.Table(wide).Rows[i].Cells }
	Expect(result.Table(true).Rows).To(HaveLen(11))
	Expect(result.Table(false).Rows).To(HaveLen(5))
	const source = "MachineDeployment default/md (spec.template.metadata.annotations"
	Expect(row(false, 2)).To(Equal([]any{
		"Machine", "default/m-0 and 2 like it", "+ metadata.annotations taints.heirloom.dev/always=gpu=yes:NoExecute", source + ")",
	}))
	Expect(row(false, 4)).To(Equal([]any{
		"Node", "m-0 and 2 like it", "+ spec.taints gpu=yes:NoExecute", source + "[taints.heirloom.dev/always])",
	}))
}

func TestNames(t *testing.T) {
	names := small().answer(t, declaring("gpu=yes:NoExecute")).Names()
	NewWithT(t).Expect(names[0]).To(Equal("machinedeployment.cluster.x-k8s.io/md"))
	NewWithT(t).Expect(names).To(ContainElement(HavePrefix("node/")))
}
