// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// workloadAssetsVariable names a directory, like KUBEBUILDER_ASSETS, with the programs for control planes of workload clusters, so that
// they can have another version of Kubernetes than the management cluster.
const workloadAssetsVariable = "HEIRLOOM_WORKLOAD_ASSETS"

// served holds the version of an API server and whether it serves MutatingAdmissionPolicies.
type served struct {
	version  string
	policies bool
}

// ForWorkload returns the options of a control plane for a workload cluster.
func ForWorkload(options Options) Options {
	if options.Assets == "" {
		options.Assets = os.Getenv(workloadAssetsVariable)
	}
	return options
}

// ask reads the version and the admission kinds of the API server.
func (cp *ControlPlane) ask(ctx context.Context) error {
	c, err := discovery.NewDiscoveryClientForConfig(cp.admin)
	if err != nil {
		return fmt.Errorf("making a client for discovery: %w", err)
	}
	info, err := c.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	list, err := c.ServerResourcesForGroupVersion(admissionregistrationv1.SchemeGroupVersion.String())
	if err != nil {
		return fmt.Errorf("asking what kinds of admission the API server serves: %w", err)
	}
	cp.served = served{version: info.GitVersion, policies: slices.ContainsFunc(list.APIResources, func(resource metav1.APIResource) bool {
		return resource.Kind == "MutatingAdmissionPolicy"
	})}
	return ctx.Err()
}

// Version returns the version of the API server, such as v1.36.3.
func (cp *ControlPlane) Version() string {
	return cp.served.version
}

// AtLeast reports whether the API server is of Kubernetes 1.<minor> or later.
func (cp *ControlPlane) AtLeast(minor uint) bool {
	parsed, err := version.ParseGeneric(cp.served.version)
	return err == nil && parsed.AtLeast(version.MajorMinor(1, minor))
}

// ServesAdmissionPolicies reports whether the API server serves MutatingAdmissionPolicies in v1, as Kubernetes does since 1.36.
func (cp *ControlPlane) ServesAdmissionPolicies() bool {
	return cp.served.policies
}
