// SPDX-License-Identifier: Apache-2.0

// Package resync is the loop behind the webhooks. It runs on the leader, on every change of an owner or a child and
// every sync period, and applies the same rules: to objects that existed before Heirloom, to children of owners that
// have changed, and to writes that admission had to let pass.
package resync
