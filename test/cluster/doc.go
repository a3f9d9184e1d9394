// SPDX-License-Identifier: Apache-2.0

// Package cluster tests the image and the chart in a real Kubernetes cluster of one Node: kubelet, containerd,
// kube-proxy, scheduler and controller manager beside etcd and kube-apiserver, without Docker and without a registry.
//
// All of it, the test itself included, runs in Linux namespaces of its own (processes, mounts, network), which Main
// enters. So the test reaches Pods and Services as the Node does, no packet leaves the machine, two runs do not meet, and
// the kernel ends and unmounts everything as soon as the test ends, however it ends.
//
// It needs Linux, root, and the packages that prepare.sh installs. Where they are missing, Missing says which, and tests skip.
package cluster
