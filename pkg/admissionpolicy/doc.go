// SPDX-License-Identifier: Apache-2.0

// Package admissionpolicy gives the Nodes of a workload cluster what their Machines declare in the write by which their
// kubelets create them, without a webhook: for workload clusters whose API server cannot call out to the management
// cluster, and for the time in which the management cluster is down. It keeps a MutatingAdmissionPolicy, its binding and
// one ConfigMap with parameters in the workload cluster, which has to be of Kubernetes 1.36 or later.
//
// What a Node gets is computed here, by the same rules as everywhere (inherit.Policy.Node for a kubelet); the policy only
// finds the Machine that a Node is, in the way of inherit.Match, and merges. It is for the CREATE of a Node by its own
// kubelet and for nothing else, and fails open.
//
// # Parameters
//
// All parameters are in one ConfigMap, because an expression sees one parameter object at a time. With several, each would
// be asked on its own whether it knows the Node, in no particular order, and two of them could answer: one for the Machine
// that has the Node's providerID, one for another that has its address. Which of the two counts, or that none does, can
// only be told where both can be seen. Data keys are
//
//	format      the version of all that follows, "1". A policy leaves parameters of another format alone.
//	m.<number>  a Machine, in lines: the number of its content (empty: it counts as a candidate and gives nothing),
//	            spec.providerID, status.nodeRef.name (both may be empty), then its names and addresses.
//	i.<x>.<y>   the numbers of the Machines, separated by commas, of which a providerID, a name or an address ends in x and
//	            the part of it before the first dot in y, where both are the last one or two characters of those that a data
//	            key may have. So a lookup reads a few Machines instead of all.
//	c.<number>  a content, in lines: "guard" or nothing, labels as key=value and taints as key=value:effect, both
//	            separated by commas, then one annotation in each line as key=value, with %0A for a line break and %25 for %.
//
// "guard" says that the taint node.cluster.x-k8s.io/uninitialized and its mark come with it, unless the kubelet brings that
// taint. Machines that declare the same share their content.
//
// # Limits
//
// Machines whose Nodes are there already are left out (see Syncer.Registered): what is kept is about the Nodes to come. A
// ConfigMap holds 1 MiB of values, and etcd takes objects of 1.5 MiB. That is room for about 6000 Machines at a time if
// they share their content. For Machines beyond it Ensure returns a NoRoomError; their Nodes get all of it from the loop,
// like every Node whose Machine, name or providerID came too late for the parameters.
//
// A Node whose lookup takes more of CEL's budget than there is gets nothing either. There the budget is a hundred times
// what 5000 Machines with common names need; it is for the case that all of their names are alike.
package admissionpolicy
