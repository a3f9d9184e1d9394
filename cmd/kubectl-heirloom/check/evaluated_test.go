// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

// A Cluster that could not be evaluated was not reached, and nothing is known of its Nodes.
func TestClustersThatCannotBeEvaluated(t *testing.T) {
	Expect := NewWithT(t).Expect
	good := clusterState{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "good"}, tree: &snapshot.Tree{Member: &snapshot.Member{}}}
	bad := clusterState{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "bad"}, err: errors.New("no answer")}
	w := &world{fleet: func() (*fleet, error) { return &fleet{clusters: []clusterState{bad, good}}, nil }}

	reached := workloadClusters(t.Context(), w)
	Expect(reached.Status).To(Equal(Unknown))
	Expect(reached.Message).To(HavePrefix("1 workload cluster could be reached"))
	Expect(reached.Details).To(ContainElement("Cluster fleet/bad could not be read: no answer"))

	judged := nodes(t.Context(), w)
	Expect(judged.Status).To(Equal(Unknown))
	Expect(judged.Details).To(ContainElement("Cluster fleet/bad could not be read: no answer"))
}
