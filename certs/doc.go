// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the webhook server's serving certificate. It comes from files, which cert-manager or an operator
// mounts into the Pod, or Heirloom makes it itself, with a CA of its own.
//
// Its own CA and the certificate are in one Secret that all replicas share. The replica that finds a step due takes it, and
// the Secret's version lets one win. No leader is needed: in a rolling update the leader may be a Pod that does not know this
// Secret yet, and that is not replaced before a new one is ready.
//
// A CA is replaced without a moment at which an API server cannot verify the certificate that is served. First the next CA
// is written and published in the webhook configurations beside the current one. After a while it becomes the current one,
// and makes the certificate. For as long again, the previous one stays published. A replica or an API server that sees the
// change late has that much time.
package certs
