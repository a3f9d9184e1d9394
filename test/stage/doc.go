// SPDX-License-Identifier: Apache-2.0

// Package stage sets up the scene of the tests and of the demo: a control plane with Cluster API's CRDs, the objects
// that Heirloom's Helm chart renders, and bin/heirloom as a process of its own, with the rights of its ServiceAccount.
package stage
