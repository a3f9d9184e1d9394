// SPDX-License-Identifier: Apache-2.0

// Package world runs Heirloom, Cluster API's own reconcilers, a provider, kubelets, operators and foreign writers together in one process,
// in virtual time, with API servers in memory. A seed decides every order and every fault, except the order in which Go iterates over maps,
// so a failed run can be repeated: "make sim SEED=7" shows the writes, and SIM_LOG=1 the logs of the programs.
package world
