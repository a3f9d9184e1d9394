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

// ReadAudit calls a function for each event of an audit log, from where it was read last; from 0 on at first. It returns where it ends:
// what has no end yet is read next time.
func ReadAudit(path string, from int64, each func(*auditv1.Event)) (end int64, err error) {
	log, err := os.Open(path)
	if err != nil {
		return from, fmt.Errorf("opening an audit log: %w", err)
	}
	defer func() { _ = log.Close() }() // it was only read
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
