// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// A made-up field gets from a MachineSet to its Machine, as each version of the API has it, and is ours there.
func TestMadeUpField(t *testing.T) {
	for version, want := range map[string]struct{ declared, patch string }{
		"v1beta1": {`"nodeStartupTimeout": "1m30s"`, `{"op":"add","path":"/spec/nodeStartupTimeout","value":"1m30s"}`},
		"v1beta2": {`"nodeStartupTimeoutSeconds": 90`, `{"op":"add","path":"/spec/nodeStartupTimeoutSeconds","value":90}`},
	} {
		t.Run(version, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ms, m := &capi.MachineSet{}, &capi.Machine{TypeMeta: metav1.TypeMeta{APIVersion: "cluster.x-k8s.io/" + version, Kind: "Machine"}}
			Expect(json.Unmarshal([]byte(`{"spec": {"template": {"spec": {`+want.declared+`}}}}`), ms)).To(Succeed())
			inherits, err := inherit.Policy{}.Machine(ms, m)
			Expect(err).NotTo(HaveOccurred())
			plan, err := ownership.New(m, inherit.OfMachine(m), inherits)
			Expect(err).NotTo(HaveOccurred())
			operations, err := plan.Patch([]byte(`{"metadata": {}, "spec": {}}`), m.APIVersion, time.Unix(0, 0))
			Expect(err).NotTo(HaveOccurred())
			Expect(operations).To(HaveLen(2))
			patch, err := operations[0].MarshalJSON()
			Expect(err).NotTo(HaveOccurred())
			Expect(patch).To(MatchJSON(want.patch))
			Expect(operations[1].Json()).To(ContainSubstring("f:nodeStartupTimeout"))
		})
	}
}
