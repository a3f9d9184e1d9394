// SPDX-License-Identifier: Apache-2.0

// Package workers gives a controller that talks to many clusters as many workers as it takes, so that clusters which do not
// answer keep nobody else waiting, however many they are.
//
// A worker of controller-runtime sees to one request at a time, and a controller has a fixed number of them: as many requests
// that hang stop everything. Therefore each cluster has at most its share of the workers, the rest of its requests wait in a
// line of their own, and whenever all workers are busy there are more. Nobody polls: the worker that has done a request of a
// cluster takes the next one of that cluster. How many workers there are is bounded by the clusters: a share for each. They
// are goroutines that cost a few KiB, and stay.
package workers
