// SPDX-License-Identifier: Apache-2.0

// Package providers caches objects of providers' kinds: control planes, InfraMachines and BootstrapConfigs. Which kinds
// there are is not known before an object names one, and whether the API server can list them is not in our hands: behind
// each is a conversion webhook, a right and a CustomResourceDefinition of somebody else. So they have a cache of their own,
// in which no kind waits for another, and nobody waits for a kind for long.
package providers
