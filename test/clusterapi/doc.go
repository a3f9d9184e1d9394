// SPDX-License-Identifier: Apache-2.0

// Package clusterapi runs Cluster API's released managers as processes on a control plane of tests: the core manager, the kubeadm managers,
// and the Docker provider with its in-memory backend, in which a whole Cluster needs no container. "make fleet" and the tests of test/e2e
// share it.
package clusterapi
