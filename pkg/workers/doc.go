// SPDX-License-Identifier: Apache-2.0

// Package workers gives a controller that talks to many clusters as many workers as it takes, so that clusters that do not
// answer, however many they are, keep no other waiting.
//
// A worker of controller-runtime handles one request at a time, and a controller has a fixed number of workers: as many
// requests that hang stop everything. Here, each cluster has a limited number of workers, and the rest of its requests wait in
// a line of their own. Whenever all workers are busy, there are more. Nobody polls: the worker that has finished a request of
// a cluster takes the next one of that cluster. The clusters bound the number of workers, which are goroutines of a few KiB
// and stay.
package workers
