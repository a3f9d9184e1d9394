// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// serve returns the world of testdata/fleet.yaml, and the requests to its API server.
func serve(t *testing.T) (w compare.World, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	live := fleet.Server(fleet.Objects(t, "testdata/fleet.yaml")...).WithInterceptorFuncs(fleet.Asks(func(request string) error {
		*asked = append(*asked, request)
		return nil
	})).Build()
	w = fleet.World(t, live)
	w.Now = time.Unix(1e9, 0)
	return w, asked
}

// However many objects a Cluster has, each list is read once, and no object is read by itself.
func TestListsAreReadOnce(t *testing.T) {
	g := NewWithT(t)
	w, asked := serve(t)
	_, err := w.Tree(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*asked).To(ConsistOf("list ClusterList", "list ClusterClassList", "list MachineDeploymentList", "list MachinePoolList",
		"list MachineSetList", "list MachineList", "list AcmeMachineList", "list NodeList"))
}
