// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

func TestFamily(t *testing.T) {
	for name, test := range map[string]struct {
		kind       schema.GroupKind
		name       types.NamespacedName
		management string
		// want are the names of those found, or what the error says.
		want, wantErr string
	}{
		"a Machine's owners are found":                   {kind: capiKind("Machine"), name: in("m"), want: "m ms md c"},
		"a MachineSet's owners are found":                {kind: capiKind("MachineSet"), name: in("ms"), want: "ms md c"},
		"a Node is found by its providerID":              {kind: schema.GroupKind{Kind: "Node"}, name: types.NamespacedName{Name: "n"}, want: "n m ms md c"},
		"a Node's name proves nothing without a Cluster": {kind: schema.GroupKind{Kind: "Node"}, name: types.NamespacedName{Name: "ref"}, wantErr: "--management-cluster=<namespace>/<name>"},
		"a Node is found by its name in its Cluster":     {kind: schema.GroupKind{Kind: "Node"}, name: types.NamespacedName{Name: "ref"}, management: "default/c", want: "ref by-ref c"},
		"Machines of another Cluster do not count":       {kind: schema.GroupKind{Kind: "Node"}, name: types.NamespacedName{Name: "ref"}, management: "default/d", wantErr: "of the 0 of Cluster default/d"},
		"an object that is not there is named":           {kind: capiKind("Machine"), name: in("none"), wantErr: "getting Machine default/none"},
		"another kind is refused":                        {kind: capiKind("Cluster"), name: in("c"), wantErr: "choose a machine, a machineset or a node"},
		"a Machine of another API group is refused":      {kind: schema.GroupKind{Group: "machine.openshift.io", Kind: "Machine"}, name: in("m"), wantErr: "machines.cluster.x-k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			management, err := parseManagementCluster(test.management)
			if err != nil {
				t.Fatal(err)
			}
			live := fleet(t)
			r := reader{live: live, chain: ownerchain.Chain{Reader: live}, management: management}
			f, err := r.family(t.Context(), test.kind, test.name)
			if err != nil || test.wantErr != "" {
				if test.wantErr == "" || err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want %q", err, test.wantErr)
				}
				return
			}
			if got := names(f); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func capiKind(kind string) schema.GroupKind { return clusterv1.GroupVersion.WithKind(kind).GroupKind() }

func in(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// fleet serves Node n, which is Machine m of MachineSet ms of MachineDeployment md, and Node ref, which is Machine by-ref.
func fleet(t *testing.T) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	capi.AddToScheme(scheme, clusterv1.GroupVersion)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "id"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ref"}},
		&capi.Cluster{ObjectMeta: owned("c", "", "")},
		&capi.MachineDeployment{ObjectMeta: owned("md", "", ""), Spec: capi.WorkersSpec{ClusterName: "c"}},
		&capi.MachineSet{ObjectMeta: owned("ms", "MachineDeployment", "md"), Spec: capi.WorkersSpec{ClusterName: "c"}},
		&capi.Machine{ObjectMeta: owned("m", "MachineSet", "ms"), Spec: capi.MachineSpec{ClusterName: "c", ProviderID: "id"}},
		&capi.Machine{
			ObjectMeta: owned("by-ref", "", ""), Spec: capi.MachineSpec{ClusterName: "c"},
			Status: capi.MachineStatus{NodeRef: capi.NodeRef{Name: "ref"}},
		},
	).Build()
}

func owned(name, kind, owner string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
	if kind != "" {
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true),
		}}
	}
	return meta
}

func names(f origin.Family) string {
	var found []string
	if f.Node != nil {
		found = append(found, f.Node.Name)
	}
	if f.Machine != nil {
		found = append(found, f.Machine.Name)
	}
	if f.MachineSet != nil {
		found = append(found, f.MachineSet.Name)
	}
	if f.MachineDeployment != nil {
		found = append(found, f.MachineDeployment.Name)
	}
	if f.Cluster != nil {
		found = append(found, f.Cluster.Name)
	}
	return strings.Join(found, " ")
}

func TestPrint(t *testing.T) {
	e := &origin.Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Explanation"},
		Entries: []origin.Entry{
			{Kind: origin.Label, Key: "team", Value: "ml", From: "up there", Inherited: true, OwnedByHeirloom: true},
			{Kind: origin.Annotation, Key: "long", Value: strings.Repeat("é", 60), From: "set here by heirloom", OwnedByHeirloom: true},
		},
		Notes: []string{"Mind the gap."},
	}
	for format, want := range map[string]string{
		"": "KIND         KEY    VALUE                                              FROM\n" +
			"label        team   ml                                                 up there (owned by heirloom)\n" +
			"annotation   long   " + strings.Repeat("é", 47) + "…   set here by heirloom\n" +
			"Note: Mind the gap.\n",
		"json": `"value": "` + strings.Repeat("é", 60) + `"`,
		"yaml": "notes:\n- Mind the gap.\n",
	} {
		t.Run("format "+format, func(t *testing.T) {
			show, err := printerFor(format)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			command := NewCommand()
			command.SetOut(&out)
			command.SetErr(&out)
			if err := show(command, e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), want) {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}

func TestWrongFlagsAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, flag := range []string{"--output=wide", "--management-cluster=mgmt", "--management-cluster=a/b/c"} {
		command := NewCommand()
		command.SetArgs([]string{"explain", "node/n", flag, "--server=https://127.0.0.1:1"})
		command.SetOut(&bytes.Buffer{})
		command.SetErr(&bytes.Buffer{})
		name, _, _ := strings.Cut(flag, "=")
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
