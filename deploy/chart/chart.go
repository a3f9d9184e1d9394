// SPDX-License-Identifier: Apache-2.0

// Package chart has the files of Heirloom's chart by which the kubectl plugin judges values.
package chart

import _ "embed"

// Values are the chart's default values, and Schema is their JSON schema.
var (
	//go:embed heirloom/values.yaml
	Values []byte
	//go:embed heirloom/values.schema.json
	Schema []byte
)
