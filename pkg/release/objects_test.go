// SPDX-License-Identifier: Apache-2.0

package release

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What nobody else owns goes, from every kind that inherits and from no other; what is other people's stays.
func TestEveryKindIsReleased(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served,
		teamed(t, controlPlane, "ControlPlane", "cp"), teamed(t, controlPlane, "ControlPlaneTemplate", "cpt"),
		teamed(t, core, "Cluster", "c"), teamed(t, core, "MachineDeployment", "md"), teamed(t, core, "MachinePool", "mp"),
		teamed(t, core, "MachineSet", "ms"), teamed(t, core, "Machine", "m"), teamed(t, core, "MachineHealthCheck", "mhc"),
		teamed(t, infra, "InfraMachine", "im"), teamed(t, infra, "InfraMachineTemplate", "imt"), teamed(t, bootstrap, "Bootstrap", "b"),
	)
	r := releasing(management, Options{})
	Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
	Expect(management.written()).To(ConsistOf(
		"patch ControlPlane cp", "patch MachineDeployment md", "patch MachinePool mp", "patch MachineSet ms", "patch Machine m",
		"patch InfraMachine im", "patch Bootstrap b",
	))
	Expect(management.writes[0]).To(HavePrefix("patch ControlPlane"), "owners come before what they own")
	Expect(management.writes[5:]).To(Equal([]string{"patch InfraMachine im", "patch Bootstrap b"}), "what stands beside a Machine comes last")
	Expect(strings.Split(strings.TrimSpace(r.out.String()), "\n")).To(ConsistOf(
		"controlplane.controlplane.cluster.x-k8s.io/cp released in namespace ns",
		"machinedeployment.cluster.x-k8s.io/md released in namespace ns",
		"machinepool.cluster.x-k8s.io/mp released in namespace ns",
		"machineset.cluster.x-k8s.io/ms released in namespace ns",
		"machine.cluster.x-k8s.io/m released in namespace ns",
		"inframachine.infrastructure.cluster.x-k8s.io/im released in namespace ns",
		"bootstrap.bootstrap.cluster.x-k8s.io/b released in namespace ns",
	))
	Expect(r.progress.String()).To(ContainSubstring("Machine.cluster.x-k8s.io: 1 of 1 released\n"))
	text, managers := management.stored(t, core, "Machine", "m")
	Expect(text).To(MatchYAML(`{metadata: {labels: {mine: "yes"}}}`))
	Expect(managers).To(Equal([]string{"user"}))
}

// What is Heirloom's is told by managed fields, wherever in an object it is.
func TestWhatIsReleased(t *testing.T) {
	const content = `{metadata: {labels: {team: ml, mine: "yes"}, annotations: {note: x}}, spec: {clusterName: c, deletion: {nodeDrainTimeoutSeconds: 60}}}`
	ours := owns(core, "heirloom", `{f:metadata: {f:labels: {f:team: {}}, f:annotations: {f:note: {}}}, f:spec: {f:deletion: {f:nodeDrainTimeoutSeconds: {}}}}`)
	user := owns(core, "user", `{f:metadata: {f:labels: {f:mine: {}}}, f:spec: {f:clusterName: {}}}`)
	paths := "  .metadata.annotations.note\n  .metadata.labels.team\n  .spec.deletion.nodeDrainTimeoutSeconds\n"
	for _, tc := range []struct {
		name     string
		options  Options
		fields   []metav1.ManagedFieldsEntry
		want     string
		managers []string
		out      string
	}{
		{
			name: "labels, annotations and fields go", fields: []metav1.ManagedFieldsEntry{ours, user}, managers: []string{"user"},
			want: `{metadata: {labels: {mine: "yes"}}, spec: {clusterName: c}}`, out: "machine.cluster.x-k8s.io/m released in namespace ns\n",
		},
		{
			name: "what somebody else owns too stays", managers: []string{"capi", "user"},
			fields: []metav1.ManagedFieldsEntry{owns(core, "capi", `{f:metadata: {f:labels: {f:team: {}}}}`), ours, user},
			want:   `{metadata: {labels: {team: ml, mine: "yes"}}, spec: {clusterName: c}}`, out: "machine.cluster.x-k8s.io/m released in namespace ns\n",
		},
		{
			name: "values are kept where that is wanted", options: Options{KeepValues: true}, fields: []metav1.ManagedFieldsEntry{ours, user},
			want: content, managers: []string{"user"}, out: "machine.cluster.x-k8s.io/m released in namespace ns\n",
		},
		{
			name: "a dry run says what would go", options: Options{DryRun: true}, fields: []metav1.ManagedFieldsEntry{ours, user},
			want: content, managers: []string{"heirloom", "user"}, out: "machine.cluster.x-k8s.io/m released in namespace ns (dry run)\n" + paths,
		},
		{
			name: "a dry run says that values would be kept", options: Options{DryRun: true, KeepValues: true}, fields: []metav1.ManagedFieldsEntry{ours, user},
			want: content, managers: []string{"heirloom", "user"}, out: "machine.cluster.x-k8s.io/m released in namespace ns (dry run)\n",
		},
		{name: "where nothing is ours nothing is written", fields: []metav1.ManagedFieldsEntry{user}, want: content, managers: []string{"user"}},
		{name: "nor where nobody owns anything", want: content},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, object(t, core, "Machine", "m", content, tc.fields...))
			r := releasing(management, tc.options)
			Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
			text, managers := management.stored(t, core, "Machine", "m")
			Expect(text).To(MatchYAML(tc.want))
			Expect(managers).To(Equal(tc.managers))
			Expect(r.out.String()).To(Equal(tc.out))
			written := len(management.writes) > 0
			Expect(written).To(Equal(tc.out != "" && !tc.options.DryRun))

			again := releasing(management, Options{})
			if tc.options.DryRun {
				return
			}
			management.writes = nil
			Expect(again.Run(t.Context())).To(Succeed())
			Expect(management.written()).To(BeEmpty(), "a second run changes nothing")
			Expect(again.out.String()).To(BeEmpty())
		})
	}
}

// Fields are read in the version in which they are recorded, because their paths differ between versions.
func TestTheVersionOfAnObject(t *testing.T) {
	const old = "cluster.x-k8s.io/v1beta1"
	both := map[string][]string{core: served[core], old: {"Machine"}}
	for _, tc := range []struct {
		name     string
		served   map[string][]string
		recorded string
		released string
	}{
		{"in which our fields are recorded", both, old, old},
		{"that is preferred, where they are recorded in that one", both, core, core},
		{"that is preferred, where the other one is not served any more", served, old, core},
		{"that is preferred, where the record makes no sense", both, "a/b/c", core},
		{"that is preferred, where the record is of another group", both, "v1", core},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			content := `{metadata: {labels: {team: ml}}}`
			ours := owns(tc.recorded, "heirloom", `{f:metadata: {f:labels: {f:team: {}}}}`)
			management := holds(tc.served, object(t, core, "Machine", "m", content, ours), object(t, old, "Machine", "m", content, ours))
			var read []string
			management.after["patch Machine"] = func(o client.Object) {
				read = append(read, o.GetObjectKind().GroupVersionKind().GroupVersion().String())
			}
			Expect(releasing(management, Options{}).Run(t.Context())).To(Succeed())
			Expect(read).To(Equal([]string{tc.released}))
		})
	}
}
