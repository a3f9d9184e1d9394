// SPDX-License-Identifier: Apache-2.0

// Package workers gives a controller that talks to many clusters as many workers as it needs, so that clusters that do not
// answer never hold up the others.
//
// A worker of controller-runtime handles one request at a time, and a controller has a fixed number of workers: as many
// requests that hang stop everything. Here, each cluster has a limited number of workers, and the rest of its requests wait in
// a line of their own. Whenever all workers are busy, more are started. Nothing polls: the worker that has finished a request
// of a cluster takes the next one of that cluster. The number of clusters bounds the number of workers. They are goroutines
// of a few KiB, and never end.
package workers
