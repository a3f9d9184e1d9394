// SPDX-License-Identifier: Apache-2.0

// Package kept says what the program's caches keep of an object: what the rules read, and each part that several objects have in
// common only once. Objects in a cache share memory, so nothing may change them. Readers of a cache get copies.
package kept
