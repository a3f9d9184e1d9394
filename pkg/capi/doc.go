// SPDX-License-Identifier: Apache-2.0

// Package capi holds trimmed Cluster API types: of every kind only the fields that the inheritance rules read.
//
// They exist beside the types of sigs.k8s.io/cluster-api/api for three reasons. An informer that decodes into them
// caches only what is read. One Go type serves v1beta1 and v1beta2, because the fields that differ between the two
// carry different JSON names and stand side by side here. And admission decodes them at a fraction of the cost of the
// full types. Nothing is ever written from them: writes are JSON patches, server-side applies and merge patches of
// single fields, so a field that is missing here is never lost.
//
// +kubebuilder:object:generate=true
package capi
