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
)

const (
	// strings, maps, lists and sets of fields that are remembered at a time.
	rememberedStrings, rememberedOthers = 8192, 1024
	// longest is the length of strings that are remembered; longer ones are rarely the same.
	longest = 256
)

// Shared replaces parts of objects by equal parts of other objects. It is safe for concurrent use.
type Shared struct {
	seed    maphash.Seed
	strings *recent[string]
	maps    *recent[map[string]string]
	owners  *recent[[]metav1.OwnerReference]
	lists   *recent[[]string]
	taints  *recent[[]corev1.Taint]
	typed   *recent[[]clusterv1.MachineTaint]
	fields  *recent[*metav1.FieldsV1]
}

// New returns a Shared that knows nothing yet.
func New() *Shared {
	return &Shared{
		seed:    maphash.MakeSeed(),
		strings: newRecent(rememberedStrings, func(a, b string) bool { return a == b }),
		maps:    newRecent(rememberedOthers, maps.Equal[map[string]string, map[string]string]),
		owners:  newRecent(rememberedOthers, equalLists[metav1.OwnerReference]),
		lists:   newRecent(rememberedOthers, slices.Equal[[]string]),
		taints:  newRecent(rememberedOthers, equalLists[corev1.Taint]),
		typed:   newRecent(rememberedOthers, slices.Equal[[]clusterv1.MachineTaint]),
		fields:  newRecent(rememberedOthers, func(a, b *metav1.FieldsV1) bool { return bytes.Equal(a.GetRawBytes(), b.GetRawBytes()) }),
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
	hash := maphash.String(s.seed, text)
	if known, ok := s.strings.find(hash, text); ok {
		return known
	}
	s.strings.remember(hash, text)
	return text
}

// texts replaces strings by equal ones.
func (s *Shared) texts(all ...*string) {
	for _, text := range all {
		*text = s.text(*text)
	}
}

// textMap returns an equal map. It is nil or empty where the given one is.
func (s *Shared) textMap(of map[string]string) map[string]string {
	if len(of) == 0 {
		return of
	}
	hash := uint64(len(of))
	for key, value := range of { // in any order
		hash += maphash.String(s.seed, key) * (maphash.String(s.seed, value) | 1)
	}
	if known, ok := s.maps.find(hash, of); ok {
		return known
	}
	own := make(map[string]string, len(of))
	for key, value := range of {
		own[s.text(key)] = s.text(value)
	}
	s.maps.remember(hash, own)
	return own
}

// list returns an equal list: the one that is known, or one with exactly as much room as it needs, whose items have been made
// to share what they can.
func list[T any](known *recent[[]T], hash uint64, of []T, share func(*T)) []T {
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
	hash := maphash.Bytes(s.seed, of.GetRawBytes())
	if known, ok := s.fields.find(hash, of); ok {
		return known
	}
	s.fields.remember(hash, of)
	return of
}
