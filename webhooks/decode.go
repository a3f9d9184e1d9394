// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"
	"reflect"

	jsonv2 "github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// decode reads an object of an admission request the way the API server would: case-sensitive, unknown fields ignored.
func decode(raw runtime.RawExtension, into any) error {
	if len(raw.Raw) == 0 {
		return errors.New("the admission request has no object")
	}
	if jsonv2.Unmarshal(raw.Raw, into) == nil {
		return nil
	}
	// The slower library says what is wrong, and reads what the other finds too odd, such as a name that is there twice.
	reflect.ValueOf(into).Elem().SetZero()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw.Raw, into); err != nil {
		return fmt.Errorf("decoding the object of the admission request: %w", err)
	}
	return nil
}
