// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	// surelyCheap is how many bytes of managed fields can be read in whatever order they are.
	surelyCheap = 96 << 10
	// mostMoves is how many elements may be moved to read managed fields. API servers write them nearly in order.
	mostMoves = 1 << 24
)

// bounded returns an error where it would take far more than its length to read the JSON of managed fields. Each element that
// is not in order moves all those after it on its level, so a forged review could keep a CPU busy for minutes.
func bounded(fields []byte) error {
	if len(fields) <= surelyCheap {
		return nil
	}
	type level struct {
		count int
		last  *fieldpath.PathElement
	}
	var levels []level
	decoder, moves := json.NewDecoder(bytes.NewReader(fields)), 0
	for decoder.More() || len(levels) > 0 {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("reading the fields: %w", err)
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				levels = append(levels, level{})
			case '}':
				levels = levels[:len(levels)-1]
			default:
				return errors.New("a list among the fields")
			}
		case string:
			if len(levels) == 0 {
				return errors.New("a text in place of the fields")
			}
			in := &levels[len(levels)-1]
			element, err := fieldpath.DeserializePathElement(token)
			if err != nil {
				continue // it is passed over when the set is read, or the error is told then
			}
			if in.last != nil && element.Compare(*in.last) < 0 {
				moves += in.count
			} else {
				in.last = &element
			}
			in.count++
		default:
			return fmt.Errorf("%v among the fields", token)
		}
		if moves > mostMoves {
			return errors.New("the fields are far out of order")
		}
	}
	return nil
}
