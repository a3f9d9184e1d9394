// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzVerify accepts only the path that Path makes of the Cluster's name and the key. Path's result is accepted for every valid name of a
// Cluster, and for no other name.
func FuzzVerify(f *testing.F) {
	genuine := Path(key(1), prod)
	mac := genuine[len(directory(prod.NamespacedName)):]
	replaced := func(old, now string) string { return strings.Replace(genuine, old, now, 1) }
	for _, path := range []string{
		genuine, "",
		// HMACs of another key, a missing key, another name and another namespace
		Path(key(2), prod), Path(nil, prod), replaced("prod.eu-1", "test"), replaced("fleet", "other"),
		// an HMAC that is missing, short, long, in capitals or no hex
		replaced(mac, ""), replaced("/"+mac, ""), genuine[:len(genuine)-2], genuine[:len(genuine)-1], genuine + "00",
		replaced(mac, strings.ToUpper(mac)), replaced(mac, strings.Replace(mac, "f", "F", 1)), replaced(mac, strings.Repeat("z", len(mac))),
		// more or fewer than three segments, also empty, dotted and escaped segments
		genuine + "/", genuine + "/nodes", replaced("fleet/", "fleet/x/"), replaced("fleet/", "fleet//"), replaced("fleet/", "fleet/./"),
		replaced("fleet/", "fleet%2F"), replaced("fleet", "fl%65et"), "/workload/fleet//" + genuine, "/workload/../" + genuine,
		// another prefix, no prefix, and a query
		replaced(Prefix, "/mutate/"), replaced(Prefix, ""), replaced("/", ""), "/x" + genuine, genuine + "?timeout=2s",
	} {
		f.Add(path, "fleet", "prod")
	}
	for _, name := range [][2]string{{"a", "b.c"}, {"a/b", "c"}, {"a.b", "c"}, {"a", "b/c"}, {"a", ".."}, {"", ".."}, {"", ""}, {"a", strings.Repeat("b", 254)}} {
		f.Add(genuine, name[0], name[1])
	}

	f.Fuzz(func(t *testing.T, path, namespace, name string) {
		if cluster, ok := Verify(key(1), path, is(prod)); ok && path != Path(key(1), named(cluster.Namespace, cluster.Name)) {
			t.Errorf("%q was taken for a path of %s", path, cluster)
		} else if !ok && cluster != (types.NamespacedName{}) {
			t.Errorf("%q was refused, and yet it named %s", path, cluster)
		}

		cluster := named(namespace, name)
		possible := len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
		read, ok := Verify(key(1), Path(key(1), cluster), is(cluster))
		if ok != possible || ok && read != cluster.NamespacedName {
			t.Errorf("the path of %s: accepted %t for %s, want %t", cluster, ok, read, possible)
		}
		if _, ok := Verify(key(1), Path(key(3), cluster), is(cluster)); ok {
			t.Errorf("the path of %s was accepted with a foreign key", cluster)
		}
	})
}
