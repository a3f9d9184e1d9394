// SPDX-License-Identifier: Apache-2.0

// Package certs is about the webhook server's serving certificate. Either files bring it, which cert-manager or an operator
// mounts into the Pod, or Heirloom makes it itself, with a CA of its own.
//
// Its own CA, and the certificate, are in one Secret that all replicas share. Whoever among them finds that a step is due
// takes it, and the Secret's version lets one win; no leader is needed, because in a rolling update the leader may be
// a Pod that knows nothing of this Secret yet, and would not go before a new one is ready.
//
// A CA is replaced without a moment at which an API server cannot verify the certificate that is served: first the next CA
// is written and published in the webhook configurations beside the current one; when it has been there for a while, it
// becomes the current one, and the certificate is made by it; for as long again, the previous one stays published. Whoever
// sees the Secret or the configurations late has that much time.
package certs
