// SPDX-License-Identifier: Apache-2.0

// Package apiserver has an API server in memory, for tests in virtual time (testing/synctest). Requests run through the handlers of
// k8s.io/apiserver, with the field managers, the schemas of custom resources and the match conditions of a real one; what
// this package adds is a store without etcd, the few things that kube-apiserver itself knows of built-in kinds, and turns: a test may choose the order of
// everything whose order matters. There are no sockets, and nothing is random.
package apiserver
