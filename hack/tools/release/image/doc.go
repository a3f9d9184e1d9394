// SPDX-License-Identifier: Apache-2.0

// Image builds Heirloom's container image with ko, for all architectures and without a container runtime or a registry. It uses ko as a
// library, because ko's command accepts a base image only from a registry, and Heirloom's image has none: it is one static program.
//
// It writes these files, and replaces existing files:
//
//	heirloom-<version>-linux-<architecture>.tar            for docker load, ctr images import, kind load image-archive
//	heirloom-<version>-linux-<architecture>.spdx.json      its contents
//	heirloom-<version>-oci.tar                             all architectures as an OCI layout, with the digests that a registry has
//	heirloom-<version>-index.spdx.json                     the list of these images
//
// The same sources, version, revision, time and Go release give the same bytes.
package main
