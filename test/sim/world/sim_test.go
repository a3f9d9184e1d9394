// SPDX-License-Identifier: Apache-2.0

//go:debug randseednop=0
package world

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestMain(m *testing.M) {
	logger := logr.Discard()
	if os.Getenv("SIM_LOG") != "" { // shows the logs of the programs
		logger = textlogger.NewLogger(textlogger.NewConfig())
	}
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	klog.StopFlushDaemon() // it follows the clock of the machine
	os.Exit(m.Run())
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s must be a number: %v", name, err)
	}
	return n
}

// TestSim plays SIM_SEEDS worlds, beginning with seed SIM_SEED.
func TestSim(t *testing.T) {
	first, count := number(t, "SIM_SEED", 1), number(t, "SIM_SEEDS", 2)
	steps := 0
	for seed := first; seed < first+count; seed++ {
		actions := plan(seed, clusters, replicas)
		result := Run(t, seed, actions)
		steps += result.Steps
		if testing.Verbose() && count == 1 {
			t.Log("What was written:\n" + strings.Join(result.Trace, "\n"))
		}
		if len(result.Broken) > 0 {
			actions, result = shrink(t, seed, actions, result)
			t.Fatalf("SEED=%d breaks a promise:\n%s\n\nThe shortest schedule that shows it:\n%s\n\nWhat was written:\n%s",
				seed, strings.Join(result.Broken, "\n"), table(actions), strings.Join(result.Trace, "\n"))
		}
	}
	t.Logf("%d seeds, %d steps", count, steps)
}

// shrink removes each action without which the run still breaks a promise.
func shrink(t *testing.T, seed uint64, actions []Action, result Result) ([]Action, Result) {
	t.Helper()
	for i := len(actions) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(actions), i, i+1)
		if without := Run(t, seed, fewer); len(without.Broken) > 0 {
			actions, result = fewer, without
		}
	}
	return actions, result
}
