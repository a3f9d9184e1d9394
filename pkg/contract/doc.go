// SPDX-License-Identifier: Apache-2.0

// Package contract finds out which of the optional fields of Cluster API's contract for control planes a provider's kind
// has.
//
// A field that a CRD lacks is dropped without a word, and the two versions of the contract have the same fields at
// different paths. A provider's version of the API does not tell which it is, so the schema has to. The API server
// publishes the schemas of all kinds as OpenAPI documents, one for each group version, to everybody who may talk to it:
// reading CRDs would need one more right and a cache of large objects.
package contract
