// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers admission requests, one file per kind. A handler decodes the request, finds the owner in the
// informer caches, calls the pure rules and answers with JSON patch operations.
//
// Every mutating webhook fails open, in the registration (failurePolicy: Ignore) and here: what cannot be decoded, found
// or computed is allowed as it came, with a warning and a metric, because a cluster must go on without Heirloom and the
// resync loop repairs. The validating webhook refuses what it has judged, and nothing else.
package webhooks
