// SPDX-License-Identifier: Apache-2.0

// Package clusterapi runs Cluster API's released managers as processes on a control plane of tests, and an infrastructure provider that
// starts a hollow kubelet for each InfraMachine.
package clusterapi
