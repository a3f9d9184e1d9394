// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Served reports whether the API server of a workload cluster knows policies of this kind. It asks the client's mapping of
// kinds: that costs nothing once they are known, and one request until then.
func Served(workload client.Client) (bool, error) {
	kind := schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: "MutatingAdmissionPolicy"}
	_, err := workload.RESTMapper().RESTMapping(kind, admissionregistrationv1.SchemeGroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for MutatingAdmissionPolicies in the workload cluster: %w", err)
	}
	return true, nil
}

// Try asks, by dry runs, whether the policy and its binding may be written in a workload cluster, and returns the API
// server's answer. It writes nothing; a real attempt would create and delete parameters that no policy reads.
func Try(ctx context.Context, workload client.Client) error {
	desired, err := digested(AdmissionPolicy(), Binding(1))
	if err != nil {
		return err
	}
	if _, err := apply(ctx, workload, desired, nil, client.DryRunAll); err != nil {
		return fmt.Errorf("trying: %w", err)
	}
	return nil
}
