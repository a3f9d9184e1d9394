// SPDX-License-Identifier: Apache-2.0

// Package webhook makes the API servers of workload clusters call Heirloom, which runs in the management cluster,
// when a Node is created or changed: it keeps a MutatingWebhookConfiguration in each of them, whose one webhook calls back
// by URL. The loop alone would apply taints a moment after a Node has registered, when Pods may be on it already.
//
// The URL's path names the Cluster and proves by an HMAC that the name is genuine, so that one cluster's path does not
// answer for another. Only Heirloom knows the keys: all replicas share them in one Secret, and they are replaced at
// regular intervals, without a moment at which a path that is in use is refused.
package webhook
