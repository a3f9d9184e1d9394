// SPDX-License-Identifier: Apache-2.0

// Package world runs Heirloom, Cluster API's own reconcilers, a provider, kubelets, operators and foreign writers beside each other in
// one process, in virtual time, with API servers in memory. A seed decides every order and every fault, so a run that fails can be
// repeated. See CONTRIBUTING.md for how to run it.
package world
