// SPDX-License-Identifier: Apache-2.0

// Package capi pins the release of Cluster API whose CRDs tests install. It imports the smallest package there, because
// a module that nothing imports does not stay in go.mod.
package capi

import _ "sigs.k8s.io/cluster-api/version"
