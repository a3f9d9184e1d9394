// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// hooks are the webhooks.
type hooks struct{}

// admitter is the chain of admission plugins.
type admitter struct{ server *Server }

// Handles implements admission.Interface.
func (admitter) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (a admitter) Admit(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	return admitNode(attributes)
}
