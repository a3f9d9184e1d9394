// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// tail is the end of a file: the bytes that were added since tailOf, and the last byte before them.
type tail struct {
	path string
	from int64
}

func tailOf(path string) tail {
	t := tail{path: path}
	if info, err := os.Stat(path); err == nil {
		t.from = max(info.Size()-1, 0)
	}
	return t
}

func (t tail) fromStart() tail {
	return tail{path: t.path}
}

func (t tail) read() ([]byte, error) {
	file, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(t.from, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// events returns the audit events whose lines begin after tailOf and are complete.
func (t tail) events() ([]auditv1.Event, error) {
	content, err := t.read()
	if err != nil {
		return nil, err
	}
	if t.from > 0 { // the tail begins at the end or in the middle of a line
		_, content, _ = bytes.Cut(content, []byte{'\n'})
	}
	var events []auditv1.Event
	for line := range bytes.Lines(content[:bytes.LastIndexByte(content, '\n')+1]) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", t.path, err)
		}
		events = append(events, event)
	}
	return events, nil
}

// faults returns the forbidden texts in a log of the program.
func (t tail) faults() []string {
	log, _ := t.read() // a program that never started has no log
	var faults []string
	for _, fault := range []string{"DATA RACE", "Panic in an admission handler", "Observed a panic"} {
		if bytes.Contains(log, []byte(fault)) {
			faults = append(faults, fault)
		}
	}
	return faults
}

func showLog(t *testing.T, log tail) {
	if content, err := log.read(); err == nil {
		t.Logf("%s:\n%s", log.path, content)
	}
}

func expectNoRace(t *testing.T, log tail) {
	for _, fault := range log.faults() {
		t.Errorf("%s has %q", log.path, fault)
		showLog(t, log)
	}
}
