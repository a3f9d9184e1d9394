// SPDX-License-Identifier: Apache-2.0

// Package policy gives the Nodes of a workload cluster what their Machines declare in the write by which their
// kubelets create them, without a webhook: for workload clusters whose API server cannot reach the management
// cluster, and for the time in which the management cluster is down. It keeps a MutatingAdmissionPolicy, its binding and
// ConfigMaps with parameters in the workload cluster, which needs Kubernetes 1.36 or later.
//
// What a Node gets is computed here, by the same rules as everywhere (inherit.Policy.Node for a kubelet); the policy only
// finds the Machine that a Node is, in the way of inherit.Match, and merges. It is for the CREATE of a Node by its own
// kubelet and for nothing else, and fails open.
//
// # Parameters
//
// They are in one ConfigMap, or, in a large cluster, in up to 16: a change of a Machine writes one of them, of some 64 KiB. An API
// server evaluates the policy once for each, in no particular order, and an expression sees one at a time. So two of them
// could answer: one for the Machine that has the Node's providerID, one for another that has its address. Which of the two
// counts, or that none does, can only be told where both can be seen. Therefore:
//
//   - Machines that have a providerID, a Node's name, a name or an address in common are in one part, which is that of the first
//     of them by name. A Machine alone is in the part that its name decides.
//   - A Machine that has a Node and no providerID, which Cluster API does not make, is in all parts, with those that it has
//     something in common with.
//   - Where there are several parts, a Node that is found by names or addresses alone gets something only if it brings no
//     providerID, and no name and no address that its Machine does not have. With one more it might be another's, and no
//     part alone can tell. A Node that is found by its providerID or because it was there before is found in any case.
//
// So all parts together say what one would say, or nothing. The binding selects the parts by a label that says how many they
// are. When their number changes, all parts are there before the binding selects them, and those before stay for a minute:
// each evaluation is by the one division or by the other. There are twice as many parts when the average grows beyond 64 KiB,
// and fewer again when it falls below 16.
//
// Data keys are
//
//	format      the version of all that follows, "1". A policy ignores parameters of another format.
//	part        only where there are several: which of how many this is.
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
// In very large clusters, Machines whose Nodes are there already are left out, so that what is kept is about the Nodes to
// come. A ConfigMap holds 1 MiB of values, and etcd takes objects of 1.5 MiB. 16 of them are room for many
// times the Nodes that Kubernetes supports in a cluster if they share their contents. About Machines beyond that, Ensure
// returns a NoRoomError.
//
// To look for a Node's Machine takes an API server time in proportion to the size of all parts together (5000 Machines are a
// MiB), and in each part less than a hundredth of the budget that it gives to expressions. It
// takes a large part of it, and up to a second, where neither the names of all these Machines nor the first parts of these
// names differ in their endings.
//
// A Node gets nothing, and then all of it from the loop, if the parameters were not there yet when it registered, or did not
// name its providerID, its name or one of its addresses yet; if there are several parts and it brings what its Machine does
// not have, as above; if it registers again while its Machine is left out; if there
// was no room; if an API server would refuse a Node with as many annotations; and if the API server, just started, has not
// read the policy or the parameters yet.
//
// That a Node was found by a name or an address alone is not recorded in inherit.MatchedByAddressAnnotation: its HMAC covers the
// Node's name, which the parameters do not know. The loop records it; if the Machine gets another Node before that, as while
// Heirloom is down, the first Node keeps what it got.
//
// # Rights
//
// In a workload cluster it takes the right to get, list, create, patch and delete Namespaces and all ConfigMaps, and to list,
// create, patch and delete MutatingAdmissionPolicies and MutatingAdmissionPolicyBindings. An API server lets a user create a
// policy only with the right to get every object of its parameters' kind. A user who can write the ConfigMaps decides which
// taints, annotations and labels new Nodes get.
package policy
