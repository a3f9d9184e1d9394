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

// tail is what is added to a file from some time on, with the last byte before.
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

// events are the requests in an audit log that have been begun since then and written to their end.
func (t tail) events() ([]auditv1.Event, error) {
	content, err := t.read()
	if err != nil {
		return nil, err
	}
	if t.from > 0 { // this is the end of a line, or the middle of one that was being written
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

// faults are what a log of the program must not have.
func (t tail) faults() []string {
	log, _ := t.read() // a program that was never started has none
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
