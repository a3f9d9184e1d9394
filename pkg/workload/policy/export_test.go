// SPDX-License-Identifier: Apache-2.0

package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// InParts returns the parameters in so many parts, however large they are.
func InParts(parts int, cluster types.NamespacedName, machines []inherit.Machine, policy inherit.Policy) ([]*corev1.ConfigMap, error) {
	return inParts(parts, cluster, entriesOf(machines, policy))
}
