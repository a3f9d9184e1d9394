// SPDX-License-Identifier: Apache-2.0

// Package capabilities finds out what the management cluster's API server can do: which of the optional fields of Cluster
// API's contract for control planes a provider's kind has, and whether Cluster API propagates taints itself.
package capabilities

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ErrNoClusterAPI says that the API server does not serve all kinds of Cluster API that Heirloom needs.
var ErrNoClusterAPI = errors.New("install Cluster API v1.11 or later first, which serves " + clusterv1.GroupVersion.String())

// ClusterAPI returns ErrNoClusterAPI, and which kinds are missing, if Cluster API is not installed or too old.
func ClusterAPI(mapper meta.RESTMapper) error {
	var missing []string
	for _, name := range []string{"Cluster", "ClusterClass", "Machine", "MachineDeployment", "MachinePool", "MachineSet"} {
		kind := clusterv1.GroupVersion.WithKind(name).GroupKind()
		_, err := mapper.RESTMapping(kind, clusterv1.GroupVersion.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("finding out whether %s is served: %w", kind, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the API server does not serve %s: %w", strings.Join(missing, ", "), ErrNoClusterAPI)
	}
	return nil
}
