// SPDX-License-Identifier: Apache-2.0

package resync

// Reasons of the loop's Events. docs/monitoring.md says what each means.
const (
	reasonNotInherited                = "NotInherited"
	reasonInheritanceFailed           = "InheritanceFailed"
	reasonDriftRepaired               = "DriftRepaired"
	reasonTrackingAnnotationBroken    = "TrackingAnnotationBroken"
	reasonNoExecuteTaintsRollingOut   = "NoExecuteTaintsRollingOut"
	reasonNoExecuteTaintsRolledOut    = "NoExecuteTaintsRolledOut"
	reasonWorkloadAdmissionRegistered = "WorkloadAdmissionRegistered"
	reasonWorkloadAdmissionRemoved    = "WorkloadAdmissionRemoved"
	reasonWorkloadAdmissionFailed     = "WorkloadAdmissionFailed"
	reasonWorkloadAdmissionFallback   = "WorkloadAdmissionFallback"
	reasonUnknownWorkloadAdmission    = "UnknownWorkloadAdmission"
	reasonNoAdmissionPolicies         = "NoAdmissionPolicies"
	reasonAdmissionPolicyFull         = "AdmissionPolicyFull"
	reasonKubeconfigRefused           = "KubeconfigRefused"
	reasonProviderKindNotListed       = "ProviderKindNotListed"
	reasonManagementClusterFound      = "ManagementClusterFound"
	reasonManagementClusterAmbiguous  = "ManagementClusterAmbiguous"
)
