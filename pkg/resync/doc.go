// SPDX-License-Identifier: Apache-2.0

// Package resync is the loop behind the webhooks. It runs on the leader, on every change of an owner or a child and
// every sync period, and applies the same rules: for objects that existed before Heirloom, for owners that changed
// without their children being written, and for whatever admission had to let pass.
package resync
