// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs real Kubernetes programs on this machine, for integration tests, end-to-end tests and the
// demo: etcd and kube-apiserver by controller-runtime's envtest, kubelets with a fake container runtime, helm, kubectl and Heirloom
// itself. It adds to envtest: an audit log, an end of all programs with this process, and control planes that one test after the other
// uses, because nothing deletes a namespace where no controller manager runs.
//
// hack/tools/build.sh prints the directories of the programs. The environment variables KUBEBUILDER_ASSETS, HEIRLOOM_TOOLS and
// HEIRLOOM_HELM name them, and hack/test.sh sets these variables. The package needs no container runtime, no cluster and no root, and
// never talks to a cluster that it did not start.
//
//	plane, err := controlplane.Start(ctx, controlplane.Options{CRDPaths: paths})
//	...
//	defer plane.Stop()
//	kubelet, err := plane.StartKubelet(ctx, controlplane.KubeletOptions{Name: "node-0", Dir: dir})
//	...
//	node, err := kubelet.WaitRegistered(ctx)
//
// No function takes a *testing.T, because the demo is not a test: the functions return errors.
package controlplane
