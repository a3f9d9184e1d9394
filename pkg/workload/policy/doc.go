// SPDX-License-Identifier: Apache-2.0

// Package policy makes the API server of a workload cluster add the declarations of Machines to their Nodes, in the write by which the
// kubelet creates the Node, and without a webhook: a MutatingAdmissionPolicy there finds the Machine of a Node in the way of inherit.Match,
// and merges. The entries for a Node are computed here, by the same rules as everywhere, and written into the ConfigMap with the policy's
// parameters.
//
// # Parameters
//
// The parameters are for Machines that have no Node yet. The keys of the ConfigMap are
//
//	format      the version of the encoding. A policy ignores parameters of another format.
//	machines    a line for each Machine, in fields that tabs separate: the number of its content (empty: a candidate that gives
//	            nothing, because it is skipped), spec.providerID or nothing, then its names and addresses.
//	c.<number>  a content, in lines: "guard" or nothing, labels as key=value and taints as key=value:effect, both separated by
//	            commas, then one annotation in each line as key=value, with %0A for a line break and %25 for %. "guard" adds the taint
//	            node.cluster.x-k8s.io/uninitialized and its annotation heirloom.dev/uninitialized, unless the kubelet brings the taint.
//
// A Node must not match the Machine of another Node. A providerID tells instances apart; names and addresses do not. So the last line has
// the names that a Machine without a line shares with the lines above: this Machine has a Node already, or there is no room for it. The
// last line is a candidate that gives nothing, so a Node that only such a name identifies gets everything from the loop, as does a Node
// that registers again.
//
// A policy looks through all lines, and an API server stops an expression at a cost of 1,000,000. 100,000 bytes are about 900 Machines; a
// Node with five names costs a quarter of the limit, and about 10 ms. A ConfigMap holds 1 MiB of values.
package policy
