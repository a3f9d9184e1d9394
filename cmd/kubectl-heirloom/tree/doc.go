// SPDX-License-Identifier: Apache-2.0

// Package tree shows a Cluster's owner chain: what enters at each step, and where an object has drifted from what it inherits. It
// decides nothing: what is desired comes from the walk, and what differs from the plan of the write that would mend it.
package tree
