// SPDX-License-Identifier: Apache-2.0

// Package links checks the links between the Markdown files of this repository, as GitHub shows them.
package links
