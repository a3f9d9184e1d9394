// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzVerify: the only path that is accepted for a Cluster is the one that Path makes of its name and the key; and Path's is
// accepted for whatever can be the name of a Cluster, and for nothing else.
func FuzzVerify(f *testing.F) {
	genuine := Path(key(1), prod)
	for _, path := range []string{
		genuine, Path(key(2), prod), genuine + "/", genuine[:len(genuine)-1], "/workload/fleet//" + genuine,
		"/workload/fleet%2Fprod/00", "/workload/../" + genuine, Path(nil, prod), "",
	} {
		f.Add(path, "fleet", "prod")
	}
	f.Add(genuine, "a", "b.c")
	f.Add(genuine, "a/b", "c")
	f.Add(genuine, "", "..")

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
