// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// buckets is how many values an index has that nearly every object has its own values of, such as providerIDs. An index takes some
// 300 bytes for each value, twice in a namespace, and 40 for each further object with the same value. So objects are indexed by the
// bucket that their value falls into, and a look-up compares the few that it finds (BenchmarkKept in cmd/heirloom/app).
const buckets = 4096

func bucketOf(value string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(value))
	return strconv.Itoa(int(hash.Sum32() % buckets))
}

// bucketsOf returns an index of the buckets of these values.
func bucketsOf(values client.IndexerFunc) client.IndexerFunc {
	return func(object client.Object) []string {
		var all []string
		for _, value := range values(object) {
			if bucket := bucketOf(value); !slices.Contains(all, bucket) {
				all = append(all, bucket)
			}
		}
		return all
	}
}

// InBucket makes a List return all objects that may have this value of a field that is indexed by buckets.
func InBucket(field, value string) client.MatchingFields {
	return client.MatchingFields{field: bucketOf(value)}
}

// machines returns the Machines with this value. They share their content with the cache and must not be changed.
func (c *Chain) machines(ctx context.Context, field, value string) ([]capi.Machine, error) {
	list := &capi.MachineList{}
	if err := c.List(ctx, list, InBucket(field, value), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Machines by %s %s: %w", field, value, err)
	}
	return slices.DeleteFunc(list.Items, func(m capi.Machine) bool {
		if field == providerIDField {
			return m.Spec.ProviderID != value
		}
		return !slices.Contains(machineNodeNames(&m), value)
	}), nil
}

// pools returns the MachinePools that name a Node by its providerID. They share their content with the cache and must not be changed.
func (c *Chain) pools(ctx context.Context, providerID string) ([]capi.MachinePool, error) {
	list := &capi.MachinePoolList{}
	if err := c.List(ctx, list, InBucket(providerIDField, providerID), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachinePools by providerID: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(mp capi.MachinePool) bool { return !slices.Contains(mp.Spec.ProviderIDList, providerID) }), nil
}

// nodes returns the Nodes in a cache with this value.
func nodes(ctx context.Context, cache client.Reader, field, value string) ([]types.NamespacedName, error) {
	list := &corev1.NodeList{}
	if err := cache.List(ctx, list, InBucket(field, value), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Nodes by %s %s: %w", field, value, err)
	}
	var all []types.NamespacedName
	for i := range list.Items {
		node := &list.Items[i]
		if field == providerIDField && node.Spec.ProviderID == value || field == nodeNameField && slices.Contains(inherit.NodeNames(node), value) {
			all = append(all, client.ObjectKeyFromObject(node))
		}
	}
	return all, nil
}
