// SPDX-License-Identifier: Apache-2.0

// Package taint holds everything that Heirloom knows about taints: how they are declared (typed or as annotations),
// parsed, formatted, merged and validated, and what happens to those of a Node. The rules are those of docs/design.md §3.
//
// The package is pure: no client, no context, no logger.
package taint
