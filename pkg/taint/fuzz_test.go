// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// FuzzParseList checks that no text makes the parser panic, that no entry is lost without an error, and that formatted taints parse to the
// same taints.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{
		"", ",", " , ", "gpu=true:NoSchedule,dedicated=ml:NoExecute", "a:NoSchedule,typo,b:NoExecute", "a=:x", "=:", ":", "a=b=c:d",
		"a:b:c", "a b:c d", "a:No=Schedule", "é=ü:NoSchedule", "a:NoSchedule\n,\tb:NoExecute", "\xff:\xff", "%s=%d:%v",
		"\ufeffgpu:NoSchedule,\u00a0a=b:NoExecute\u2003", "a==:b,:=a:,=,::,a:=b,a=:=b", "a\x00=b\r:No\nSchedule,\x7f:\x1b[31m,\xc3\x28=\xff:x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		taints, err := taint.ParseList(s)
		if got, want := len(taints)+count(err), entries(s); got != want {
			t.Fatalf("ParseList(%q) accounts for %d entries of %d: %v, %v", s, got, want, taints, err)
		}
		formatted := taint.FormatList(taints)
		again, err := taint.ParseList(formatted)
		if err != nil {
			t.Fatalf("FormatList of ParseList(%q) is %q, which cannot be read: %v", s, formatted, err)
		}
		if rewritten := taint.FormatList(again); rewritten != formatted {
			t.Fatalf("%q is read and written as %q", formatted, rewritten)
		}
		for _, one := range taints {
			if i := taint.Find(again, taint.IDOf(one)); i < 0 {
				t.Fatalf("%q of %q is lost in %q", taint.Format(one), s, formatted)
			}
		}
	})
}

// entries counts the entries of a list that are not blank.
func entries(s string) int {
	n := 0
	for entry := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(entry) != "" {
			n++
		}
	}
	return n
}

// count counts the errors that are joined in err.
func count(err error) int {
	if err == nil {
		return 0
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // the join itself, not its elements
		return len(joined.Unwrap())
	}
	return 1
}

// FuzzValidateCarrier checks that no object makes validation panic, that every error names a field and a reason, that an update is validated
// no more strictly than a create, and that an update without changes is not validated.
func FuzzValidateCarrier(f *testing.F) {
	for _, seed := range [][2]string{
		{`{}`, ``},
		{`{"spec":{"taints":["a:NoSchedule"]}}`, `{"spec":`},
		{`{"spec":{"Taints":[{"key":"a","effect":"Never","propagation":"Always"}],"template":null,"topology":{"workers":{"machineDeployments":[null]}}}}`, `{}`},
		{`{"spec":{"taints":[{"key":"a","effect":"NoSchedule","propagation":"Always"}]}}`, `{}`},
		{`{"spec":{"taints":[{"key":"a"},{"key":"a"}]}}`, `{"spec":{"taints":[{"key":"a"}]}}`},
		{`{"metadata":{"annotations":{"taints.heirloom.dev/always":"typo,a:Never"},"labels":{"cluster.x-k8s.io/control-plane":""}}}`, `null`},
		{`{"spec":{"topology":{"workers":{"machineDeployments":[{"name":"a","taints":[{"key":"node.kubernetes.io/x"}]}]}}}}`, `{"spec":{"topology":null}}`},
		{`{"spec":{"workers":{"machinePools":[{"class":"a","template":{"metadata":{"annotations":{"taints.heirloom.dev/initialize":"x"}}}}]}}}`, `{}`},
		{`{"spec":{"machineTemplate":{"taints":[{}],"spec":{"taints":[null]}}}}`, `{}`},
		{`{"metadata":{"annotations":{"taints.heirloom.dev/always":"typo,a:b:c,x=y:NoSchedule"}}}`, `{"metadata":{"annotations":{"taints.heirloom.dev/always":"typo"}}}`},
		{`{"metadata":{"annotations":{"taints.heirloom.dev/always":null}},"spec":{"taints":[null,{"key":null}],"controlPlane":null,"workers":{"machinePools":[null]}}}`, `{"spec":{"taints":[null]}}`},
		{`{"spec":{"topology":{"workers":{"machineDeployments":[{"name":"a","taints":[{"key":"x"}]},{"name":"a"}]}}}}`, `{"spec":{"topology":{"workers":{"machineDeployments":[{"name":"a"}]}}}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), false)
		f.Add([]byte(seed[0]), []byte(seed[1]), true)
	}
	f.Fuzz(func(t *testing.T, object, before []byte, controlPlane bool) {
		c, old := &taint.Carrier{}, &taint.Carrier{}
		if kjson.UnmarshalCaseSensitivePreserveInts(object, c) != nil {
			return
		}
		if kjson.UnmarshalCaseSensitivePreserveInts(before, old) != nil {
			old = nil
		}
		create := map[string]bool{}
		for _, err := range taint.ValidateCarrier(c, nil, controlPlane) {
			create[err.Error()] = true
			if err.Field == "" || err.ErrorBody() == "" {
				t.Fatalf("an error without field or reason: %#v", err)
			}
		}
		for _, err := range taint.ValidateCarrier(c, old, controlPlane) {
			if !create[err.Error()] {
				t.Fatalf("only the update was refused: %v", err)
			}
		}
		if errs := taint.ValidateCarrier(c, c, controlPlane); len(errs) > 0 && sectionsAreUnique(object) {
			t.Fatalf("an update that changes nothing was refused: %v", errs)
		}
	})
}

// sectionsAreUnique reports whether sections have unique names, which Cluster API enforces.
func sectionsAreUnique(object []byte) bool {
	return strings.Count(string(object), `"machineDeployments"`)+strings.Count(string(object), `"machinePools"`) == 0
}
