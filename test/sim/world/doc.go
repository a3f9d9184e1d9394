// SPDX-License-Identifier: Apache-2.0

// Package world runs Heirloom, Cluster API's own reconcilers, providers, kubelets, operators and foreign writers together in one process, in
// virtual time, with API servers in memory. A seed decides every order and every fault. "make sim SEED=7" shows the writes, and repeats
// itself to the byte, also on a busy machine: it is built with ../overlay. Addresses in memory still differ between runs, so no program may
// range over a map of more than eight pointers whose order matters. SIM_LOG=1 adds the logs of the programs. Without the overlay, as in
// "go test", Go chooses the order of goroutines, cases of select, timers and maps anew in each run.
package world
