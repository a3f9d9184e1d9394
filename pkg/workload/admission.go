// SPDX-License-Identifier: Apache-2.0

package workload

// AdmissionLabel says of a Cluster how its Nodes are admitted; without it --workload-admission does.
const AdmissionLabel = "heirloom.dev/workload-admission"

// The ways to admit the Nodes of workload clusters: values of AdmissionLabel and of --workload-admission.
const (
	// AdmitAutomatically leaves the choice to Heirloom: by policy where the workload cluster can have one, otherwise by
	// webhook where there is a URL for it, otherwise by the loop.
	AdmitAutomatically = "auto"
	// AdmitByLoop means that nothing is done in admission: the loop brings a Node what it inherits.
	AdmitByLoop    = "none"
	AdmitByWebhook = "webhook"
	AdmitByPolicy  = "policy"
)
