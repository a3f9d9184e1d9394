// SPDX-License-Identifier: Apache-2.0

// Package capabilities finds out what the management cluster's API server can do: which of the optional fields of Cluster
// API's contract for control planes a provider's kind has, and whether Cluster API propagates taints itself.
package capabilities
