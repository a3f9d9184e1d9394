// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

var prod = types.NamespacedName{Namespace: "fleet", Name: "prod.eu-1"}

// key returns the key whose bytes are all the same.
func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

// Whoever changes how a path is made locks out every workload cluster until it is told its new path.
func TestAPathStaysTheSame(t *testing.T) {
	NewWithT(t).Expect(Path(key(1), prod)).To(Equal("/workload/fleet/prod.eu-1/f54615ca0e8b8c0e5135ef516d61fff67d7313d0993fd1244b83d1193650a632"))
}

func TestAGenuinePathNamesItsCluster(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys [][]byte
	}{
		{name: "with the only key", keys: [][]byte{key(1)}},
		{name: "with the first key", keys: [][]byte{key(1), key(2), key(3)}},
		{name: "with the last key", keys: [][]byte{key(2), key(3), key(1)}},
		{name: "beside a key that is missing", keys: [][]byte{nil, key(1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster, ok := Verify(tc.keys, Path(key(1), prod))
			NewWithT(t).Expect(ok).To(BeTrue())
			NewWithT(t).Expect(cluster).To(Equal(prod))
		})
	}
}

func TestWhatIsNotGenuineIsRefused(t *testing.T) {
	genuine := Path(key(1), prod)
	mac := genuine[len(directory(prod)):]
	for _, tc := range []struct{ name, path string }{
		{name: "another key's", path: Path(key(2), prod)},
		{name: "the HMAC of another name", path: directory(types.NamespacedName{Namespace: "fleet", Name: "test"}) + mac},
		{name: "the HMAC of another namespace", path: directory(types.NamespacedName{Namespace: "other", Name: "prod.eu-1"}) + mac},
		{name: "no HMAC", path: directory(prod)},
		{name: "no HMAC and no slash", path: strings.TrimSuffix(directory(prod), "/")},
		{name: "an HMAC cut short by a byte", path: genuine[:len(genuine)-2]},
		{name: "an HMAC cut short by half a byte", path: genuine[:len(genuine)-1]},
		{name: "an HMAC with a byte too many", path: genuine + "00"},
		{name: "an HMAC in capitals", path: directory(prod) + strings.ToUpper(mac)},
		{name: "an HMAC with one capital", path: directory(prod) + strings.Replace(mac, "f", "F", 1)},
		{name: "an HMAC that is no hex", path: directory(prod) + strings.Repeat("z", len(mac))},
		{name: "a slash at the end", path: genuine + "/"},
		{name: "a segment more", path: genuine + "/nodes"},
		{name: "a segment between", path: strings.Replace(genuine, "fleet/", "fleet/x/", 1)},
		{name: "an empty segment", path: strings.Replace(genuine, "fleet/", "fleet//", 1)},
		{name: "a dot segment", path: strings.Replace(genuine, "fleet/", "fleet/./", 1)},
		{name: "an escaped slash", path: strings.Replace(genuine, "fleet/", "fleet%2F", 1)},
		{name: "an escaped letter", path: strings.Replace(genuine, "fleet", "fl%65et", 1)},
		{name: "another prefix", path: strings.Replace(genuine, Prefix, "/mutate/", 1)},
		{name: "no prefix", path: strings.TrimPrefix(genuine, "/")},
		{name: "something before the prefix", path: "/x" + genuine},
		{name: "a query", path: genuine + "?timeout=2s"},
		{name: "a namespace that is none, with its own HMAC", path: Path(key(1), types.NamespacedName{Namespace: "a.b", Name: "c"})},
		{name: "a name that is none, with its own HMAC", path: Path(key(1), types.NamespacedName{Namespace: "a", Name: ".."})},
		{name: "a name that is two segments, with its own HMAC", path: Path(key(1), types.NamespacedName{Namespace: "a", Name: "b/c"})},
		{name: "no names, with their own HMAC", path: Path(key(1), types.NamespacedName{})},
		{name: "a name longer than any, with its own HMAC", path: Path(key(1), types.NamespacedName{Namespace: "a", Name: strings.Repeat("b", 254)})},
		{name: "nothing", path: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster, ok := Verify([][]byte{key(1)}, tc.path)
			NewWithT(t).Expect(ok).To(BeFalse(), tc.path)
			NewWithT(t).Expect(cluster).To(BeZero(), "nobody is to go on with a name that was not proved")
		})
	}
}

// Anybody can compute the HMAC of a key that is not there.
func TestAKeyThatIsMissingOrShortOpensNothing(t *testing.T) {
	for _, short := range [][]byte{nil, {}, []byte("secret"), key(1)[1:]} {
		_, ok := Verify([][]byte{short}, Path(short, prod))
		NewWithT(t).Expect(ok).To(BeFalse(), "a key of %d bytes", len(short))
	}
	_, ok := Verify(nil, Path(nil, prod))
	NewWithT(t).Expect(ok).To(BeFalse(), "no keys")
}

func TestTheLongestNamesHaveAPath(t *testing.T) {
	label := strings.Repeat("a", 63)
	longestNames := types.NamespacedName{Namespace: label, Name: label + "." + label + "." + label + "." + strings.Repeat("b", 61)}
	cluster, ok := Verify([][]byte{key(1)}, Path(key(1), longestNames))
	NewWithT(t).Expect(ok).To(BeTrue())
	NewWithT(t).Expect(cluster).To(Equal(longestNames))
}

// The same letters, divided otherwise between namespace and name, are another Cluster.
func TestNoTwoClustersShareAnHMAC(t *testing.T) {
	seen := map[string]types.NamespacedName{}
	for _, cluster := range []types.NamespacedName{
		{Namespace: "ab", Name: "c"}, {Namespace: "a", Name: "bc"}, {Namespace: "abc"}, {Name: "abc"}, {Namespace: "a/b", Name: "c"}, {Namespace: "a", Name: "b/c"},
	} {
		mac := string(authenticate(key(1), cluster))
		NewWithT(t).Expect(seen).NotTo(HaveKey(mac), "%v and %v", cluster, seen[mac])
		seen[mac] = cluster
	}
}
