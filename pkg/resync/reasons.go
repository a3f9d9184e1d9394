// SPDX-License-Identifier: Apache-2.0

package resync

// Reasons of the loop's Events, beside those of pkg/workload. docs/monitoring.md says what each means.
const (
	reasonNotInherited               = "NotInherited"
	reasonInheritanceFailed          = "InheritanceFailed"
	reasonDriftRepaired              = "DriftRepaired"
	reasonTrackingAnnotationBroken   = "TrackingAnnotationBroken"
	reasonNoExecuteTaintsRollingOut  = "NoExecuteTaintsRollingOut"
	reasonNoExecuteTaintsRolledOut   = "NoExecuteTaintsRolledOut"
	reasonKubeconfigRefused          = "KubeconfigRefused"
	reasonProviderKindNotListed      = "ProviderKindNotListed"
	reasonManagementClusterFound     = "ManagementClusterFound"
	reasonManagementClusterAmbiguous = "ManagementClusterAmbiguous"
)
