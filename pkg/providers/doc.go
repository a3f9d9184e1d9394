// SPDX-License-Identifier: Apache-2.0

// Package providers caches objects of providers' kinds: control planes, InfraMachines and BootstrapConfigs. Which kinds exist
// is known once an object names one, and listing one depends on others: on a provider's conversion webhook, a right, a
// CustomResourceDefinition. So they have a cache of their own, in which no kind waits for another and no read waits long.
package providers
