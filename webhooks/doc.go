// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers admission requests. One handler serves every kind of Cluster API in the table of pkg/owners; Nodes
// and the validation of taints have their own. A mutating handler decodes the request, finds the owner in the informer caches,
// calls the pure rules and answers with JSON patch operations.
//
// Every mutating webhook fails open, in the registration (failurePolicy: Ignore) and here: clusters must go on without Heirloom,
// and the resync loop repairs. A request that cannot be decoded or answered is allowed unchanged, with a warning and a metric. The
// validating webhook refuses only taints that it has judged.
package webhooks
