// SPDX-License-Identifier: Apache-2.0

// Package ownership turns what a child inherits into a write that owns exactly what it adds (docs/design.md §2).
//
// A Plan is computed from the child, its managed fields and what it should inherit. It can be rendered in two ways:
// as JSON patch operations for an admission response, which include our entry in metadata.managedFields, or as the
// configuration of a server-side apply. Both lead to the same object.
//
// The package is pure: no client, no context, no logger.
package ownership
