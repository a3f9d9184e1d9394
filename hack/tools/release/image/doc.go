// SPDX-License-Identifier: Apache-2.0

// Image builds Heirloom's container image with ko, for all architectures and without a container runtime or a registry.
// It is ko as a library rather than its command, because the command can take a base image from a registry only, and
// Heirloom's image has none: it is one static program.
//
// It writes, and replaces what is there:
//
//	heirloom-<version>-linux-<architecture>.tar            for docker load, ctr images import, kind load image-archive
//	heirloom-<version>-linux-<architecture>.spdx.json      what is in it
//	heirloom-<version>-oci.tar                             all architectures as an OCI layout, with the digests that a registry has
//	heirloom-<version>-index.spdx.json                     which images these are
//
// The same sources, version, revision, time and Go release give the same bytes.
package main
