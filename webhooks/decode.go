// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// decode reads an object of an admission request the way the API server would: case-sensitive, unknown fields ignored.
func decode[T any](raw runtime.RawExtension) (*T, error) {
	if len(raw.Raw) == 0 {
		return nil, errors.New("the admission request has no object")
	}
	into := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw.Raw, into); err != nil {
		return nil, fmt.Errorf("decoding the object of the admission request: %w", err)
	}
	return into, nil
}

// decodeBoth reads the new object and, of an update, the old one.
func decodeBoth[T any](req admission.Request) (object, old *T, err error) {
	if object, err = decode[T](req.Object); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
		old, err = decode[T](req.OldObject)
	}
	return object, old, err
}
