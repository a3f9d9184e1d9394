// SPDX-License-Identifier: Apache-2.0

// Package cluster tests the image and the chart in a real Kubernetes cluster of one Node (kubelet, containerd, kube-proxy, scheduler,
// controller manager, etcd and kube-apiserver), without Docker and without a registry.
//
// All programs, including the test, run in their own Linux namespaces (processes, mounts, network), which Main enters. So the test
// reaches Pods and Services as the Node does, no packet leaves the machine, two runs do not meet, and the kernel ends and unmounts
// everything at the end of the test, even after a crash.
//
// It needs Linux, root, and the packages that prepare.sh installs. Where they are missing, Missing names them, and the tests skip.
package cluster
