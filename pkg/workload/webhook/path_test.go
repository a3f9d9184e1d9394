// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

var prod = Identity{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "prod.eu-1"}, UID: "b5a2ec0c-7b5f-4f5e-9f0b-6d1f6f0c2f11"}

// named returns a Cluster of this name, with prod's UID.
func named(namespace, name string) Identity {
	return Identity{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: prod.UID}
}

// is returns a lookup of UIDs that knows this Cluster, and a Cluster with prod's UID for every other name.
func is(cluster Identity) func(types.NamespacedName) types.UID {
	return func(name types.NamespacedName) types.UID {
		if name == cluster.NamespacedName {
			return cluster.UID
		}
		return prod.UID
	}
}

// key returns the key whose bytes are all the same.
func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

// A change of the path's format would lock out every workload cluster until its configuration has the new path.
func TestAPathStaysTheSame(t *testing.T) {
	NewWithT(t).Expect(Path(key(1), prod)).To(Equal("/workload/fleet/prod.eu-1/9ba3bde23600db8f00f240431c3d910e66889930ff1a83c26a7dc5e01412f0b2"))
}

// Anybody can compute the HMAC of an empty key.
func TestMissingOrShortKeysAuthenticateNothing(t *testing.T) {
	for _, short := range [][]byte{nil, {}, []byte("secret"), key(1)[1:]} {
		_, ok := Verify(short, Path(short, prod), is(prod))
		NewWithT(t).Expect(ok).To(BeFalse(), "a key of %d bytes", len(short))
	}
}

// A Cluster that is created again under the same name is another Cluster: the path of the earlier Cluster's API server is not valid for it.
func TestAPathIsForOneLifeOfACluster(t *testing.T) {
	before, after := prod, prod
	after.UID = "0d2c0c55-32e8-4d0a-8a3e-2c5b8b1f7d52"
	for name, tc := range map[string]struct {
		made, there Identity
		want        bool
	}{
		"the Cluster is the same":                                     {made: before, there: before, want: true},
		"the Cluster is made anew, with the path of the one before":   {made: before, there: after},
		"the Cluster is made anew, with its own path":                 {made: after, there: after, want: true},
		"the Cluster has gone":                                        {made: before, there: Identity{NamespacedName: prod.NamespacedName}},
		"the Cluster has gone, and the path was made without a UID":   {made: Identity{NamespacedName: prod.NamespacedName}, there: Identity{NamespacedName: prod.NamespacedName}},
		"the Cluster is there, and the path was made without its UID": {made: Identity{NamespacedName: prod.NamespacedName}, there: before},
	} {
		cluster, ok := Verify(key(1), Path(key(1), tc.made), is(tc.there))
		NewWithT(t).Expect(ok).To(Equal(tc.want), name)
		NewWithT(t).Expect(cluster == prod.NamespacedName).To(Equal(tc.want), name)
	}
}

// The same letters, divided differently among namespace, name and UID, are another Cluster.
func TestNoTwoClustersShareAnHMAC(t *testing.T) {
	seen := map[string]Identity{}
	for _, cluster := range []Identity{
		named("ab", "c"), named("a", "bc"), named("abc", ""), named("", "abc"), named("a/b", "c"), named("a", "b/c"),
		{NamespacedName: types.NamespacedName{Namespace: "a", Name: "b"}, UID: "c"}, {NamespacedName: types.NamespacedName{Namespace: "a", Name: "bc"}},
	} {
		mac := string(authenticate(key(1), cluster))
		NewWithT(t).Expect(seen).NotTo(HaveKey(mac), "%v and %v", cluster, seen[mac])
		seen[mac] = cluster
	}
}

func TestBaseURL(t *testing.T) {
	for _, tc := range []struct{ name, raw, want, problem string }{
		{name: "a host is enough", raw: "https://heirloom.example.com", want: "https://heirloom.example.com"},
		{name: "a port and a path may be there", raw: "https://heirloom.example.com:8443/base/path", want: "https://heirloom.example.com:8443/base/path"},
		{name: "a slash at the end is dropped", raw: "https://heirloom.example.com/", want: "https://heirloom.example.com"},
		{name: "an address will do", raw: "https://[2001:db8::1]:443", want: "https://[2001:db8::1]:443"},

		{name: "plain HTTP is refused", raw: "http://heirloom.example.com", problem: "must be https://"},
		{name: "a host without a scheme is refused", raw: "heirloom.example.com", problem: "must be https://"},
		{name: "a URL without a host is refused", raw: "https:///base", problem: "must be https://"},
		{name: "a port without a host is refused", raw: "https://:8443", problem: "must be https://"},
		{name: "a user is refused", raw: "https://me@heirloom.example.com", problem: "no user"},
		{name: "a query is refused", raw: "https://heirloom.example.com?a=b", problem: "no query"},
		{name: "an empty query is refused", raw: "https://heirloom.example.com?", problem: "no query"},
		{name: "a fragment is refused", raw: "https://heirloom.example.com#a", problem: "no fragment"},
		{name: "an empty fragment is refused", raw: "https://heirloom.example.com#", problem: "no fragment"},
		{name: "a port that is a word is refused", raw: "https://heirloom.example.com:https", problem: "must be a URL"},
		{name: "two slashes are refused", raw: "https://heirloom.example.com//", problem: "plain path"},
		{name: "a way up is refused", raw: "https://heirloom.example.com/a/../b", problem: "plain path"},
		{name: "an escape is refused", raw: "https://heirloom.example.com/a%2Fb", problem: "plain path"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			base, err := BaseURL(tc.raw)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(base).To(BeEmpty())
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(base).To(Equal(tc.want))
			Expect(webhook.ValidateWebhookURL(field.NewPath("url"), base+Path(key(1), prod), true)).To(BeEmpty(), "an API server accepts the URL")
		})
	}
}
