// SPDX-License-Identifier: Apache-2.0

// Package apiserver provides an API server in memory, for tests in virtual time (testing/synctest). Requests run through the handlers of
// k8s.io/apiserver, with the field managers, the schemas of custom resources and the match conditions of a real API server. This package
// adds a store without etcd, the few parts of kube-apiserver that built-in kinds need, and turns: a test may choose the order of all steps
// whose order matters. There are no sockets, and nothing is random.
package apiserver
