// SPDX-License-Identifier: Apache-2.0

//go:debug randseednop=0
package world

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"pgregory.net/rapid"
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
	flag.Parse()
	set("rapid.checks", "1")
	set("rapid.nofailfile", "true")
	set("rapid.shrinktime", cmp.Or(os.Getenv("SIM_SHRINK"), "2m"))
	os.Exit(m.Run())
}

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(name), strconv.FormatUint(otherwise, 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s must be a number: %v", name, err)
	}
	return n
}

// TestSim plays SIM_SEEDS schedules, beginning with seed SIM_SEED. It prints the shortest schedule that breaks the same promise.
func TestSim(t *testing.T) {
	first, count := number(t, "SIM_SEED", 1), number(t, "SIM_SEEDS", 1)
	for seed := first; seed < first+count; seed++ {
		set("rapid.seed", strconv.FormatUint(seed, 10))
		var shortest Schedule
		var result Result
		t.Cleanup(func() {
			if len(result.Broken) > 0 {
				t.Logf("SEED=%d breaks a promise:\n%s\n\nWhat was written:\n%s\n\n\"make sim FILE=...\" plays the shortest schedule that was found:",
					seed, strings.Join(result.Broken, "\n"), strings.Join(result.Trace, "\n"))
				fmt.Println(shortest.file()) // t.Log would indent it
			}
		})
		rapid.Check(t, func(rt *rapid.T) {
			schedule := drawn(rt, seed)
			played := Run(t, schedule)
			switch promise := promises(played); {
			case len(promise) == 0:
				if testing.Verbose() && count == 1 {
					t.Logf("What was written:\n%s\n%d actions, %d steps", strings.Join(played.Trace, "\n"), len(schedule.Actions), played.Steps)
				}
			case len(result.Broken) == 0 || slices.Contains(promise, promises(result)[0]):
				shortest, result = schedule, played
				rt.Fatal(promise[0])
			}
		})
	}
}

// TestSchedules reads each stored schedule: each of them has found a fault. It plays the schedule SIM_FILE; "make sim" plays all.
func TestSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := os.Getenv("SIM_FILE")
	if file != "" {
		files = []string{file}
	}
	for _, of := range files {
		schedule, err := read(of)
		if err != nil {
			t.Fatal(err)
		}
		if file == "" {
			continue
		}
		result := Run(t, schedule)
		t.Log("What was written:\n" + strings.Join(result.Trace, "\n"))
		if len(result.Broken) > 0 {
			t.Fatal("it breaks a promise:\n" + strings.Join(result.Broken, "\n"))
		}
	}
}

// varying matches the parts of a violation that differ between runs: times, names and values.
var varying = regexp.MustCompile(`^ *[^ ]+  |[^ ]*[0-9=/:\[\]"][^ ]*`)

// promises returns the kinds of violations of a run.
func promises(r Result) []string {
	var kinds []string
	for _, broken := range r.Broken {
		kinds = append(kinds, varying.ReplaceAllString(broken, ""))
	}
	return kinds
}
