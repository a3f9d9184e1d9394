// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// ReadAudit calls each for the events of an audit log whose lines begin at an offset or later and are complete, 0 at first. It returns
// the offset for the next call.
func ReadAudit(path string, from int64, each func(*auditv1.Event)) (end int64, err error) {
	log, err := os.Open(path)
	if err != nil {
		return from, fmt.Errorf("opening an audit log: %w", err)
	}
	defer func() { _ = log.Close() }() // the file was only read
	end = max(from-1, 0)
	if _, err := log.Seek(end, io.SeekStart); err != nil {
		return from, fmt.Errorf("reading an audit log: %w", err)
	}
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return max(from, end), nil
		}
		if err != nil {
			return from, fmt.Errorf("reading an audit log: %w", err)
		}
		begin := end
		end += int64(len(line))
		if begin < from {
			continue // the end of the line before
		}
		event := &auditv1.Event{ObjectRef: &auditv1.ObjectReference{}}
		if err := json.Unmarshal(line, event); err != nil {
			return from, fmt.Errorf("reading an audit log: %w", err)
		}
		each(event)
	}
}
