// SPDX-License-Identifier: Apache-2.0

// Package policy gives the Nodes of a workload cluster what their Machines declare in the write by which their kubelets create
// them, without a webhook: a MutatingAdmissionPolicy there finds a Node's Machine in the way of inherit.Match and merges. What a Node
// gets is computed here, by the same rules as everywhere, and written into the ConfigMap of the policy's parameters.
//
// # Parameters
//
// They are about Machines that have no Node yet. The keys of the ConfigMap are
//
//	format      the version of the encoding. A policy ignores parameters of another format.
//	machines    a line for each Machine, in fields that tabs separate: the number of its content (none: it is a candidate that
//	            gives nothing, because it is skipped), spec.providerID or nothing, then its names and addresses.
//	c.<number>  a content, in lines: "guard" or nothing, labels as key=value and taints as key=value:effect, both separated by
//	            commas, then one annotation in each line as key=value, with %0A for a line break and %25 for %. "guard" says that
//	            the taint node.cluster.x-k8s.io/uninitialized and its mark come with it, unless the kubelet brings that taint.
//
// A Node must not be taken for another Machine's. A providerID tells instances apart. Names and addresses do not: the last line has
// those that a Machine without a line has, too, because it has a Node already or there is no room for it. That is a candidate that
// gives nothing, so a Node with such a name gets everything from the loop, as does a Node that registers again.
//
// A policy looks through all lines, and an API server ends an expression at a cost of 1,000,000. 100,000 bytes are some 900 Machines;
// a Node with five names costs a quarter of that, and some 10 ms. A ConfigMap holds 1 MiB of values.
package policy
