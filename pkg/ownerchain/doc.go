// SPDX-License-Identifier: Apache-2.0

// Package ownerchain finds the objects around an object: its owner, its Cluster, the Machine that a Node is, and the
// objects to look at again when one of them changes. It reads informer caches; in admission it may ask the API server
// once, with a short timeout, for an owner that the cache does not have yet.
package ownerchain
