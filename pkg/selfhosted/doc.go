// SPDX-License-Identifier: Apache-2.0

// Package selfhosted finds out which Cluster is the management cluster itself, so that the Nodes of the management cluster
// inherit from the Machines of that Cluster and of no other.
//
// It is the one whose kubeconfig leads to the API server that the Cluster API objects are in. Tenants may write Clusters,
// Machines and kubeconfigs, and choose the server of these, so it takes two things: that server has the same Namespace
// kube-system, by its UID; and our own API server says that the credentials of the kubeconfig are an administrator's there.
// A server may lie about the first, but a tenant who can show the second has nothing to gain.
package selfhosted
