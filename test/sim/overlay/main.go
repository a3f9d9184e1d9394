// SPDX-License-Identifier: Apache-2.0

// Overlay writes an overlay for "go build -overlay" with which a world of testing/synctest repeats itself: the same program with the same
// SIM_SEED takes the same order of goroutines, cases of select, maps and timers. It edits copies of a few files of packages runtime and
// context. Each edit must match exactly once; with another minor version of Go than the edits are for, the overlay is empty.
//
// usage: go run ./test/sim/overlay DIRECTORY     writes DIRECTORY/overlay.json
//
// The program must run with GOMAXPROCS=1 and GOGC=off, because the overlay knows one processor only, and the garbage collector follows the
// clock of the machine.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// version is the minor version of Go that the edits are for.
const version = "go1.26"

// inContext is a file of package context, from the folder of package runtime.
const inContext = "../context/context.go"

// edit inserts text after the only place in a file that reads so, or replaces this place.
type edit struct{ file, at, insert, replace string }

var edits = []edit{
	{file: "rand.go", at: "\tglobalRand.state.Init(*seed)\n", replace: "\tclear(seed[:])\n\tglobalRand.state.Init(*seed)\n"}, // keys of hashes
	{file: "rand.go", at: "\nfunc rand() uint64 {\n", insert: "\tif true {\n\t\treturn simDraw(&simMaps)\n\t}\n"},
	// Idle threads draw from these, so worlds must not.
	{file: "rand.go", at: "\nfunc cheaprand() uint32 {\n", insert: "\tif true {\n\t\treturn uint32(simNext(&simThreads))\n\t}\n"},
	{file: "rand.go", at: "\tmp.cheaprand = rand()\n", replace: "\tmp.cheaprand = simNext(&simThreads)\n"},
	{file: "rand.go", at: "\nvar readRandomFailed bool\n", insert: states},
	{file: "select.go", at: "j := cheaprandn(uint32(norder + 1))", replace: "j := uint32(simDraw(&simSelects) % uint64(norder+1))"},
	// Nothing takes the processor from a goroutine that spins in select.
	{file: "select.go", at: "\tncases := nsends + nrecvs\n", insert: "\tif simSpins(gp) {\n\t\tGosched()\n\t}\n"},
	// Timers that are due at once.
	{file: "time.go", at: "t.rand = cheaprand()", replace: "t.rand = uint32(simDraw(&simTimers))"},
	// sysmon takes the processor from a goroutine that runs or waits for the kernel, by the clock of the machine. Without it, each
	// goroutine that becomes ready goes to the end of the queue.
	{file: "proc.go", at: "const haveSysmon = GOARCH != \"wasm\"", replace: "const haveSysmon = false"},
	// A goroutine outside of the world moves this count.
	{file: "proc.go", at: "if pp.schedtick%61 == 0 && !sched.runq.empty() {", replace: "if false {"},
	// A mutex is fair after a goroutine has waited for a millisecond of the machine.
	{file: "sema.go", at: "\nfunc internal_sync_nanotime() int64 {\n", insert: "\tif true {\n\t\treturn 0\n\t}\n"},
	// The end of a context ends its children in the order of a map of pointers, and from the ninth on, their addresses decide this order.
	{
		file: inContext, at: "children map[canceler]struct{} //",
		replace: "children map[canceler]int\n\tordered map[int]canceler\n\tcount int //",
	},
	{
		file: inContext, at: "p.children = make(map[canceler]struct{})",
		replace: "p.children, p.ordered = map[canceler]int{}, map[int]canceler{}",
	},
	{
		file: inContext, at: "p.children[child] = struct{}{}",
		replace: "p.count++\n\t\t\tp.children[child], p.ordered[p.count] = p.count, child",
	},
	{
		file: inContext, at: "\t\tdelete(p.children, child)\n",
		replace: "\t\tdelete(p.ordered, p.children[child])\n\t\tdelete(p.children, child)\n",
	},
	{file: inContext, at: "for child := range c.children {", replace: "for _, child := range c.ordered {"},
	{file: "synctest.go", at: "\nfunc synctestRun(f func()) {\n", insert: "\tsimBegin()\n"},
}

// states are the states of random numbers: what a world draws depends on its seed and on nothing outside of it.
const states = `
// simState is drawn from by goroutines in a bubble and by all others.
type simState struct{ inside, outside uint64 }

var (
	simMaps, simSelects, simTimers simState
	simThreads                     uint64
	simSelected                    int
)

//go:nosplit
func simDraw(state *simState) uint64 {
	// Timers run on the stack of the system.
	if gp := getg(); gp.bubble != nil || gp.m.curg != nil && gp.m.curg.bubble != nil || state == &simTimers {
		return simNext(&state.inside)
	}
	return simNext(&state.outside)
}

// simNext is splitmix64.
//
//go:nosplit
func simNext(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// simBegin sets the states at the begin of a world.
func simBegin() {
	seed := uint64(0xcbf29ce484222325)
	for _, c := range []byte(gogetenv("SIM_SEED")) {
		seed = (seed ^ uint64(c)) * 0x100000001b3
	}
	simMaps.inside = simNext(&seed)
	simSelects.inside = simNext(&seed)
	simTimers.inside = simNext(&seed)
	simSelected = 0
}

// simSpins reports whether goroutines of a world have called select so many times that one may spin.
func simSpins(gp *g) bool {
	if gp.bubble == nil {
		return false
	}
	simSelected++
	return simSelected%1000 == 0
}
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/sim/overlay DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// write writes the edited files and overlay.json.
func write(directory string) error {
	out, err := exec.Command("go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	goVersion, root, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	files := map[string]string{}
	if goVersion != version && !strings.HasPrefix(goVersion, version+".") {
		fmt.Fprintf(os.Stderr, "warning: the overlay is for %s, and this is %s: worlds do not repeat themselves\n", version, goVersion)
	} else if files, err = replace(filepath.Join(root, "src", "runtime"), directory); err != nil {
		return err
	}
	overlay, err := json.MarshalIndent(map[string]any{"Replace": files}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "overlay.json"), overlay, 0o600)
}

// replace writes edited copies of Go's files, and returns which file each of them replaces.
func replace(runtime, directory string) (map[string]string, error) {
	texts := map[string]string{}
	for _, edit := range edits {
		text, read := texts[edit.file]
		if !read {
			content, err := os.ReadFile(filepath.Join(runtime, edit.file))
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		if n := strings.Count(text, edit.at); n != 1 {
			return nil, fmt.Errorf("%s has %q %d times, not once", edit.file, edit.at, n)
		}
		by := edit.replace
		if by == "" {
			by = edit.at + edit.insert
		}
		texts[edit.file] = strings.Replace(text, edit.at, by, 1)
	}
	files := map[string]string{}
	var errs []error
	for file, text := range texts {
		copied := filepath.Join(directory, filepath.Base(file))
		files[filepath.Join(runtime, file)] = copied
		errs = append(errs, os.WriteFile(copied, []byte(text), 0o600))
	}
	return files, errors.Join(errs...)
}
