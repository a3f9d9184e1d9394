// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// object is a JSON object that keeps its members in order.
type object struct{ members []member }

type member struct {
	name  string
	value any // an object, []any, or the value that encoding/json decodes
}

func (o *object) get(name string) any {
	for _, m := range o.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// setFirst sets a member and moves it to the front.
func (o *object) setFirst(name string, value any) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
	o.members = slices.Insert(o.members, 0, member{name, value})
}

// parse reads one object.
func parse(raw []byte) (*object, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value, err := next(decoder)
	if err != nil {
		return nil, err
	}
	o, ok := value.(*object)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	return o, nil
}

// next reads the next value.
func next(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			item, err := next(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err = decoder.Token()
		return list, err
	case json.Delim('{'):
		o := &object{}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			value, err := next(decoder)
			if err != nil {
				return nil, err
			}
			o.members = append(o.members, member{fmt.Sprint(name), value})
		}
		_, err = decoder.Token()
		return o, err
	default:
		return token, nil
	}
}

// width is the maximum length of a line.
const width = 140

func (o *object) String() string { return encode(o, "", 0) }

// encode returns a value as JSON that begins in a column: on one line if it fits and is plain, otherwise on several lines.
func encode(value any, indent string, column int) string {
	if plain := line(value); depth(value) < 3 && column+len(plain) <= width {
		return plain
	}
	inner := indent + "  "
	var parts []string
	switch v := value.(type) {
	case *object:
		for _, m := range v.members {
			name := line(m.name) + ": "
			parts = append(parts, inner+name+encode(m.value, inner, len(inner)+len(name)))
		}
		return "{\n" + strings.Join(parts, ",\n") + "\n" + indent + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, inner+encode(item, inner, len(inner)))
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	default:
		return line(value)
	}
}

// line returns a value as JSON on one line.
func line(value any) string {
	var parts []string
	switch v := value.(type) {
	case *object:
		for _, m := range v.members {
			parts = append(parts, line(m.name)+": "+line(m.value))
		}
		return strings.TrimSuffix("{ "+strings.Join(parts, ", "), " ") + " }"
	case []any:
		for _, item := range v {
			parts = append(parts, line(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		var plain bytes.Buffer
		encoder := json.NewEncoder(&plain)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(v); err != nil {
			panic(err) // it was JSON when it was read
		}
		return strings.TrimSpace(plain.String())
	}
}

// depth returns the depth of nested objects.
func depth(value any) int {
	deepest := 0
	switch v := value.(type) {
	case *object:
		for _, m := range v.members {
			deepest = max(deepest, depth(m.value))
		}
		return deepest + 1
	case []any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	}
	return deepest
}
