// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// What is ordinary is valid to the library, too, and what labels usually look like is ordinary.
func TestOrdinaryIsValid(t *testing.T) {
	for _, usual := range []string{"team", "node-role.kubernetes.io/worker", "Camel_Case/x", "app.kubernetes.io/Part_of.it", "1/1"} {
		if is := ordinary(labelKey, usual, "value-1.2_3"); is != (usual != "Camel_Case/x") {
			t.Errorf("%q: %v", usual, is)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	some := func(longest int) string {
		var text strings.Builder
		for range random.IntN(longest) {
			text.WriteByte("aaaz09AZ--..__//é %"[random.IntN(len("aaaz09AZ--..__//é %"))])
		}
		return text.String()
	}
	found := 0
	for range 200_000 {
		key, value := some(8), some(4)
		if random.IntN(10) == 0 {
			key, value = strings.Repeat("a", random.IntN(70))+"."+key, strings.Repeat("a", random.IntN(70))
		}
		for _, what := range []string{labelKey, annotationKey} {
			if !ordinary(what, key, value) {
				continue
			}
			found++
			if wrong := refused(what, key, value); len(wrong) > 0 {
				t.Fatalf("%s %q=%q: %v", what, key, value, wrong)
			}
		}
	}
	if found < 1000 {
		t.Fatalf("only %d were ordinary", found)
	}
}
