// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// strings, maps, lists and sets of fields that are remembered at a time.
	rememberedStrings, rememberedOthers = 8192, 1024
	// longest is the length of strings that are remembered; longer ones are rarely the same.
	longest = 256
)

// Shared replaces parts of objects by equal parts of other objects. It is safe for concurrent use.
type Shared struct {
	policy  inherit.Policy
	seed    maphash.Seed
	strings *Recent[string]
	maps    *Recent[map[string]string]
	owners  *Recent[[]metav1.OwnerReference]
	lists   *Recent[[]string]
	taints  *Recent[[]corev1.Taint]
	typed   *Recent[[]clusterv1.MachineTaint]
	fields  *Recent[*metav1.FieldsV1]
}

// New returns a Shared that knows nothing yet. The policy says which labels of Nodes are read.
func New(policy inherit.Policy) *Shared {
	return &Shared{
		policy:  policy,
		seed:    maphash.MakeSeed(),
		strings: NewRecent(rememberedStrings, func(a, b string) bool { return a == b }),
		maps:    NewRecent(rememberedOthers, maps.Equal[map[string]string, map[string]string]),
		owners:  NewRecent(rememberedOthers, equalLists[metav1.OwnerReference]),
		lists:   NewRecent(rememberedOthers, slices.Equal[[]string]),
		taints:  NewRecent(rememberedOthers, equalLists[corev1.Taint]),
		typed:   NewRecent(rememberedOthers, slices.Equal[[]clusterv1.MachineTaint]),
		fields:  NewRecent(rememberedOthers, func(a, b *metav1.FieldsV1) bool { return bytes.Equal(a.GetRawBytes(), b.GetRawBytes()) }),
	}
}

func equalLists[T any](a, b []T) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// text returns an equal string.
func (s *Shared) text(text string) string {
	if text == "" || len(text) > longest {
		return text
	}
	return s.strings.Same(maphash.String(s.seed, text), text)
}

// texts replaces strings by equal ones.
func (s *Shared) texts(all ...*string) {
	for _, text := range all {
		*text = s.text(*text)
	}
}

// textMap returns an equal map, which is nil if it is empty.
func (s *Shared) textMap(of map[string]string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	hash := HashOfMap(s.seed, of)
	if known, ok := s.maps.find(hash, of); ok {
		return known
	}
	own := make(map[string]string, len(of)) // with only as much room as it needs
	for key, value := range of {
		own[s.text(key)] = s.text(value)
	}
	s.maps.remember(hash, own)
	return own
}

// HashOfMap returns the hash of a map.
func HashOfMap(seed maphash.Seed, of map[string]string) uint64 {
	hash := uint64(len(of))
	for key, value := range of { // in any order
		hash += maphash.Comparable(seed, [2]uint64{maphash.String(seed, key), maphash.String(seed, value)})
	}
	return hash
}

// list returns an equal list: the one that is known, or one with exactly as much room as it needs, whose items have been made
// to share what they can.
func list[T any](known *Recent[[]T], hash uint64, of []T, share func(*T)) []T {
	if len(of) == 0 {
		return of
	}
	if same, ok := known.find(hash, of); ok {
		return same
	}
	own := slices.Clip(slices.Clone(of))
	for i := range own {
		share(&own[i])
	}
	known.remember(hash, own)
	return own
}

// hashOf returns a hash of these strings in this order.
func (s *Shared) hashOf(texts ...string) uint64 {
	var hash maphash.Hash
	hash.SetSeed(s.seed)
	for _, text := range texts {
		_, _ = hash.WriteString(text)
		_ = hash.WriteByte(0)
	}
	return hash.Sum64()
}

// fieldSet returns an equal set of fields. Its bytes are shared as well.
func (s *Shared) fieldSet(of *metav1.FieldsV1) *metav1.FieldsV1 {
	if of == nil {
		return nil
	}
	return s.fields.Same(maphash.Bytes(s.seed, of.GetRawBytes()), of)
}
