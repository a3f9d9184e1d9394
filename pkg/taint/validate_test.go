// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

var long = strings.Repeat("x", 64)

func TestReservedKeys(t *testing.T) {
	for _, tc := range []struct {
		key                    string
		onWorker, onController string
	}{
		{key: "gpu"},
		{key: "example.com/gpu"},
		{key: "node.kubernetes.io/out-of-service"},
		{key: "node.kubernetes.io/out-of-service-soon", onWorker: "only node.kubernetes.io/out-of-service may be set", onController: "only node.kubernetes.io/out-of-service may be set"},
		{key: "node.kubernetes.io/not-ready", onWorker: "node lifecycle controller", onController: "node lifecycle controller"},
		{key: "node.kubernetes.io/unreachable", onWorker: "node lifecycle controller", onController: "node lifecycle controller"},
		{key: "node.cluster.x-k8s.io/uninitialized", onWorker: "Cluster API sets and removes", onController: "Cluster API sets and removes"},
		{key: "node.cluster.x-k8s.io/outdated-revision", onWorker: "Cluster API sets and removes", onController: "Cluster API sets and removes"},
		{key: "node.cluster.x-k8s.io/mine"},
		{key: "node.cloudprovider.kubernetes.io/uninitialized", onWorker: "cloud controller manager", onController: "cloud controller manager"},
		{key: "node-role.kubernetes.io/master", onWorker: "use node-role.kubernetes.io/control-plane", onController: "use node-role.kubernetes.io/control-plane"},
		{key: "node-role.kubernetes.io/control-plane", onWorker: "reserved for control plane Machines"},
		{key: "node-role.kubernetes.io/worker"},
	} {
		t.Run(tc.key, func(t *testing.T) {
			taints := declared(t, tc.key+"=x:NoSchedule")
			for role, reason := range map[taint.Role]string{taint.Worker: tc.onWorker, taint.ControlPlane: tc.onController} {
				expectReason(t, taint.Validate(field.NewPath("spec", "taints"), role, taints, nil), reason)
				problem, reserved := taint.Problem(role, taints[0]) // what the rules leave out
				NewWithT(t).Expect(reserved).To(Equal(reason != ""))
				NewWithT(t).Expect(problem).To(ContainSubstring(reason))
			}
		})
	}
}

// expectReason expects one error at the key for this reason, or no error if the reason is empty.
func expectReason(t *testing.T, errs field.ErrorList, reason string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	if reason == "" {
		Expect(errs).To(BeEmpty())
		return
	}
	Expect(brief(errs)).To(Equal([]string{"Invalid spec.taints[0].key"}))
	Expect(errs[0].Detail).To(ContainSubstring(reason))
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name, taints, old string
		want              []string
	}{
		{name: "no taints are fine"},
		{name: "every effect and both propagations are fine", taints: "a:NoSchedule,a=b:PreferNoSchedule@OnInitialization,a:NoExecute@OnInitialization"},
		{name: "an empty key is refused", taints: "=v:NoSchedule", want: []string{"Invalid [0].key", "Invalid [0].key"}},
		{name: "a key with a blank is refused", taints: "a b:NoSchedule", want: []string{"Invalid [0].key"}},
		{name: "a key that is too long is refused", taints: long + ":NoSchedule", want: []string{"Invalid [0].key"}},
		{name: "a prefix that is no DNS name is refused", taints: "A_B/c:NoSchedule", want: []string{"Invalid [0].key"}},
		{name: "a value with a slash is refused", taints: "a=b/c:NoSchedule", want: []string{"Invalid [0].value"}},
		{name: "a value that is too long is refused", taints: "a=" + long + ":NoSchedule", want: []string{"Invalid [0].value"}},
		{name: "an unknown effect is refused", taints: "a:noschedule", want: []string{"NotSupported [0].effect"}},
		{name: "an empty effect is refused", taints: "a:", want: []string{"NotSupported [0].effect"}},
		{name: "an unknown propagation is refused", taints: "a:NoSchedule@Never", want: []string{"NotSupported [0].propagation"}},
		{name: "each fault of each taint is reported", taints: "ok:NoSchedule,a=b/c:Never@Once", want: []string{"Invalid [1].value", "NotSupported [1].effect", "NotSupported [1].propagation"}},
		{name: "the second of two taints with one key and effect is a duplicate", taints: "a=1:NoSchedule,b:NoSchedule,a=2:NoSchedule@OnInitialization", want: []string{"Duplicate [2]"}},
		{name: "one key with two effects is no duplicate", taints: "a:NoSchedule,a:NoExecute"},

		{name: "an update does not judge a taint that was there", taints: "a:Never", old: "a:Never"},
		{name: "an update does not judge a taint that moved", taints: "ok:NoSchedule,a:Never", old: "a:Never,ok:NoSchedule"},
		{name: "an update judges a taint that it adds", taints: "a:Never,b:Never", old: "a:Never", want: []string{"NotSupported [1].effect"}},
		{name: "an update judges a taint that it changes", taints: "node.kubernetes.io/x=2:NoSchedule", old: "node.kubernetes.io/x=1:NoSchedule", want: []string{"Invalid [0].key"}},
		{name: "an update may remove a taint that was wrong", taints: "ok:NoSchedule", old: "a:Never,ok:NoSchedule"},
		{name: "an update does not judge duplicates that were there", taints: "a=1:NoSchedule,a=2:NoSchedule", old: "a=1:NoSchedule,a=2:NoSchedule"},
		{name: "an update may not add a duplicate behind", taints: "a=1:NoSchedule,a=2:NoSchedule", old: "a=1:NoSchedule", want: []string{"Duplicate [1]"}},
		{name: "an update may not add a duplicate in front", taints: "a=2:NoSchedule,a=1:NoSchedule", old: "a=1:NoSchedule", want: []string{"Duplicate [1]"}},
		{name: "an update may not repeat a taint", taints: "a:NoSchedule,a:NoSchedule", old: "a:NoSchedule", want: []string{"Duplicate [1]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			taints := declared(t, tc.taints)
			errs := taint.Validate(nil, taint.Worker, taints, declared(t, tc.old))
			NewWithT(t).Expect(brief(errs)).To(Equal(tc.want))
			if len(taints) == 1 && tc.old == "" { // the rules leave out whatever an API server refuses
				problem, reserved := taint.Problem(taint.Worker, taints[0])
				NewWithT(t).Expect(problem != "").To(Equal(len(errs) > 0))
				NewWithT(t).Expect(reserved).To(BeFalse())
			}
		})
	}
}

func TestValidateAnnotations(t *testing.T) {
	const always, initialize = "annotations[taints.heirloom.dev/always]", "annotations[taints.heirloom.dev/initialize]"
	for _, tc := range []struct {
		name, always, oldAlways, initialize, oldInitialize string
		want                                               []string
	}{
		{name: "good annotations are fine", always: "gpu=true:NoSchedule", initialize: "a:NoExecute"},
		{name: "an entry that is no taint is refused", always: "gpu=true", want: []string{"Invalid " + always}},
		{name: "each such entry is an error", always: "gpu=true,a:NoSchedule,b", want: []string{"Invalid " + always, "Invalid " + always}},
		{name: "both annotations are judged", always: "typo", initialize: "slip", want: []string{"Invalid " + always, "Invalid " + initialize}},
		{name: "a reserved key is refused at the annotation", initialize: "node.kubernetes.io/not-ready:NoSchedule", want: []string{"Invalid " + initialize}},
		{name: "a duplicate is refused at the annotation", always: "a=1:NoSchedule,a=2:NoSchedule", want: []string{"Duplicate " + always}},
		{name: "the rest of a list with a typo is judged", always: "typo,a:Never", want: []string{"Invalid " + always, "NotSupported " + always}},

		{name: "an update does not judge a taint that was there", always: "a:Never,b:NoSchedule", oldAlways: "a:Never"},
		{name: "an update does not judge an entry that was broken before", always: "typo,b:NoSchedule", oldAlways: "typo"},
		{name: "an update that only sets blanks is not judged", always: " typo, a:Never", oldAlways: "typo,a:Never "},
		{name: "an update judges a taint that it adds", always: "a:Never,b:Never", oldAlways: "a:Never", want: []string{"NotSupported " + always}},
		{name: "an update judges a taint that moves to the other annotation", initialize: "a:Never", oldAlways: "a:Never", want: []string{"NotSupported " + initialize}},
		{name: "an update may remove an annotation that was wrong", oldAlways: "typo"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := taint.ValidateAnnotations(field.NewPath("annotations"), taint.Worker,
				annotations(tc.always, tc.initialize), annotations(tc.oldAlways, tc.oldInitialize))
			NewWithT(t).Expect(brief(errs)).To(Equal(tc.want))
		})
	}
}

// annotations returns annotations that declare taints; an empty text declares no taint.
func annotations(always, initialize string) map[string]string {
	m := map[string]string{"unrelated": "a:Never"}
	if always != "" {
		m[taint.AlwaysAnnotation] = always
	}
	if initialize != "" {
		m[taint.InitializeAnnotation] = initialize
	}
	return m
}
