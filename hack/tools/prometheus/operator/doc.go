// SPDX-License-Identifier: Apache-2.0

// Package operator pins the release of the Prometheus Operator whose CRDs tests install. It imports the smallest package
// there, because a module that nothing imports does not stay in go.mod.
package operator

import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
