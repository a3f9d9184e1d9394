// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A rollback leaves Nodes with records of a later version. This version reads the parts that it knows, so no entry is lost, and its next
// record has only these parts.
func TestARecordOfALaterVersion(t *testing.T) {
	Expect := NewWithT(t).Expect
	text := role + ";gpu=1:NoSchedule;gates=a:NoSchedule;later=1,2;softened=" + noon.UTC().Format("2006-01-02T15:04:05Z07:00")
	sum := sha256.Sum256([]byte(text))
	node := inherit.NodeState{
		Labels:      map[string]string{inherit.RecordLabel: hex.EncodeToString(sum[:16])},
		Annotations: map[string]string{inherit.RecordAnnotation: text},
	}
	known := inherit.Record{Labels: []string{role}, Taints: onNode("gpu=1:NoSchedule"), Softened: noon, Gates: []string{"a:NoSchedule"}}
	Expect(inherit.RecordOf(node)).To(Equal(known))
	Expect(known.Recorded(node).Annotations[inherit.RecordAnnotation]).NotTo(ContainSubstring("later"))
}
