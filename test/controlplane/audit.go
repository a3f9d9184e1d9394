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

// ReadAudit calls each for the events of an audit log from an offset on, 0 at first. It returns the offset for the next call, which
// reads a line that is incomplete now.
func ReadAudit(path string, from int64, each func(*auditv1.Event)) (end int64, err error) {
	log, err := os.Open(path)
	if err != nil {
		return from, fmt.Errorf("opening an audit log: %w", err)
	}
	defer func() { _ = log.Close() }() // the file was only read
	if _, err := log.Seek(from, io.SeekStart); err != nil {
		return from, fmt.Errorf("reading an audit log: %w", err)
	}
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return from, nil
		}
		event := &auditv1.Event{}
		if err == nil {
			err = json.Unmarshal(line, event)
		}
		if err != nil {
			return from, fmt.Errorf("reading an audit log: %w", err)
		}
		from += int64(len(line))
		if event.ObjectRef == nil {
			event.ObjectRef = &auditv1.ObjectReference{}
		}
		each(event)
	}
}
