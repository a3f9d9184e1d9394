// SPDX-License-Identifier: Apache-2.0

// Package world runs Heirloom, Cluster API's own reconcilers, a provider, kubelets, operators and foreign writers beside each other in
// one process, in virtual time, with API servers in memory. A seed decides every order and every fault, apart from the order in which Go
// goes through maps, so a run that fails can be played again: "make sim SEED=7" shows what was written, and SIM_LOG=1 what the programs log.
package world
