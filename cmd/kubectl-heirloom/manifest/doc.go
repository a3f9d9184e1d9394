// SPDX-License-Identifier: Apache-2.0

// Package manifest reads Kubernetes objects from files, without an API server, and knows the line of every field.
package manifest
