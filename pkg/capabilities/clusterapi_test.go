// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestClusterAPIMustBeInstalled(t *testing.T) {
	Expect := NewWithT(t).Expect
	all := []string{"Cluster", "ClusterClass", "Machine", "MachineDeployment", "MachinePool", "MachineSet"}
	serving := func(version schema.GroupVersion, without string) meta.RESTMapper {
		mapper := meta.NewDefaultRESTMapper(nil)
		for _, kind := range all {
			if kind != without {
				mapper.Add(version.WithKind(kind), meta.RESTScopeNamespace)
			}
		}
		return mapper
	}
	Expect(ClusterAPI(serving(clusterv1.GroupVersion, ""))).To(Succeed())
	for _, kind := range all {
		err := ClusterAPI(serving(clusterv1.GroupVersion, kind))
		Expect(err).To(MatchError("the API server does not serve " + kind + ": install Cluster API v1.11 or later first, which serves cluster.x-k8s.io/v1beta2"))
	}
	Expect(ClusterAPI(serving(schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta1"}, ""))).To(MatchError(ContainSubstring("install Cluster API")))
	err := ClusterAPI(unreachable{})
	Expect(err).To(MatchError(ContainSubstring("connection refused")))
	Expect(err).NotTo(MatchError(ContainSubstring("install Cluster API")), "nothing need be installed")
}

// unreachable is the mapper of an API server that does not answer.
type unreachable struct{ meta.RESTMapper }

func (unreachable) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}
