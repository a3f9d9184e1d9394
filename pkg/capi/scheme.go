// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The API groups of Cluster API's providers. Operators may add to those of infrastructure and bootstrap.
const (
	ControlPlaneGroup   = "controlplane.cluster.x-k8s.io"
	InfrastructureGroup = "infrastructure.cluster.x-k8s.io"
	BootstrapGroup      = "bootstrap.cluster.x-k8s.io"
)

// ServedVersions returns the versions of cluster.x-k8s.io that Heirloom understands, the best first.
func ServedVersions() []string {
	return []string{"v1beta2", "v1beta1"}
}

// NotServedError says that the API server does not serve Cluster API, or not all of it yet.
//
// +kubebuilder:object:generate=false
type NotServedError struct {
	// Kinds are missing, each with its group; or Machine alone, if it is in no version that Heirloom understands.
	Kinds []string
}

// Error implements error.
func (e *NotServedError) Error() string {
	return fmt.Sprintf("the API server serves no %s in any of the versions %v: install Cluster API v1.8 or later first",
		strings.Join(e.Kinds, ", "), ServedVersions())
}

// Version returns the version of cluster.x-k8s.io to read and write: the best that the API server serves.
// It returns a NotServedError, which says what to do, when Cluster API is not installed there.
func Version(mapper meta.RESTMapper) (schema.GroupVersion, error) {
	kind := schema.GroupKind{Group: clusterv1.GroupVersion.Group, Kind: "Machine"}
	for _, version := range ServedVersions() {
		mapping, err := mapper.RESTMapping(kind, version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return schema.GroupVersion{}, fmt.Errorf("finding the served version of %s: %w", kind, err)
		}
		return mapping.GroupVersionKind.GroupVersion(), nil
	}
	return schema.GroupVersion{}, &NotServedError{Kinds: []string{kind.String()}}
}

// AddToScheme registers the trimmed types under version.
func AddToScheme(scheme *runtime.Scheme, version schema.GroupVersion) {
	scheme.AddKnownTypes(version, &Cluster{}, &ClusterClass{}, &MachineDeployment{}, &MachineSet{}, &Machine{}, &MachinePool{})
	for kind, list := range map[string]runtime.Object{
		"Cluster": &ClusterList{}, "ClusterClass": &ClusterClassList{}, "MachineDeployment": &MachineDeploymentList{},
		"MachineSet": &MachineSetList{}, "Machine": &MachineList{}, "MachinePool": &MachinePoolList{},
	} {
		scheme.AddKnownTypeWithName(version.WithKind(kind+"List"), list)
	}
	metav1.AddToGroupVersion(scheme, version)
}
