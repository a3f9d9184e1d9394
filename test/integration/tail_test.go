// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"os"
	"slices"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// tail is the end of a file: the bytes that were added since tailOf.
type tail struct {
	path string
	from int64
}

func tailOf(path string) tail {
	t := tail{path: path}
	if info, err := os.Stat(path); err == nil {
		t.from = info.Size()
	}
	return t
}

func (t tail) fromStart() tail {
	return tail{path: t.path}
}

// read returns nothing if there is no file: a program that never started has no log.
func (t tail) read() []byte {
	content, _ := os.ReadFile(t.path)
	return content[min(t.from, int64(len(content))):]
}

// events returns the events of an audit log.
func (t tail) events() (events []auditv1.Event, err error) {
	_, err = controlplane.ReadAudit(t.path, t.from, func(event *auditv1.Event) { events = append(events, *event) })
	return events, err
}

// faults returns the forbidden texts in a log of the program.
func (t tail) faults() []string {
	log := t.read()
	return slices.DeleteFunc([]string{"DATA RACE", "Panic in an admission handler", "Observed a panic"},
		func(fault string) bool { return !bytes.Contains(log, []byte(fault)) })
}

func showLog(t *testing.T, log tail) {
	t.Logf("%s:\n%s", log.path, log.read())
}

// expectNoRace fails if the log of a program has a forbidden text, and shows the log of a test that has failed.
func expectNoRace(t *testing.T, log tail) {
	for _, fault := range log.faults() {
		t.Errorf("%s has %q", log.path, fault)
	}
	if t.Failed() {
		showLog(t, log)
	}
}
