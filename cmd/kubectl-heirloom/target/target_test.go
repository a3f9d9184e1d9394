// SPDX-License-Identifier: Apache-2.0

package target

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "machine.example.com", Version: "v1", Kind: "Machine"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineSet"},
	} {
		m.Add(gvk, meta.RESTScopeNamespace)
	}
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	return m
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args     string
		choosing bool
		// want is "<group>/<kind> <name>, … key=<key>".
		want, wantErr string
	}{
		{args: "node/x", want: "/Node x"},
		{args: "node/x team", want: "/Node x key=team"},
		{args: "node/x gpu:NoSchedule", want: "/Node x key=gpu:NoSchedule"},
		{args: "node/x node.cluster.x-k8s.io/pool", want: "/Node x key=node.cluster.x-k8s.io/pool"},
		{args: "node/x cluster.x-k8s.io/paused", want: "/Node x key=cluster.x-k8s.io/paused"},
		{args: "node/x machine.cluster.x-k8s.io/exclude-node-draining", want: "/Node x key=machine.cluster.x-k8s.io/exclude-node-draining"},
		{args: "machines.cluster.x-k8s.io/a machines.cluster.x-k8s.io/b", want: "cluster.x-k8s.io/Machine a, cluster.x-k8s.io/Machine b"},
		{args: "machine/a machineset/b team", want: "cluster.x-k8s.io/Machine a, cluster.x-k8s.io/MachineSet b key=team"},
		{args: "machines a", want: "cluster.x-k8s.io/Machine a"},
		{args: "Machine a team", want: "cluster.x-k8s.io/Machine a key=team"},
		{args: "machine.machine.example.com/a", want: "machine.example.com/Machine a"},
		{args: "machines", want: "all cluster.x-k8s.io/Machine"},
		{args: "machines team", choosing: true, want: "all cluster.x-k8s.io/Machine key=team"},
		{args: "", wantErr: "name an object"},
		{args: "foo/x", wantErr: `the API server knows no kind "foo"`},
		{args: "foo", wantErr: `the API server knows no kind "foo"`},
		{args: "machine/", wantErr: `"machine/": expected <kind>/<name>`},
		{args: "machine/a team machine/b", wantErr: `"team" is no object`},
		{args: "machine/a", choosing: true, wantErr: "leave out one or the other"},
		{args: "machine a b c", wantErr: "too much"},
		{args: "machine a b", choosing: true, wantErr: "too much"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			g := NewWithT(t)
			got, err := Parse(mapper(), strings.Fields(tc.args), tc.choosing)
			if tc.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text(got)).To(Equal(tc.want))
		})
	}
}

func text(r *Request) string {
	kind := func(m *meta.RESTMapping) string { return m.GroupVersionKind.Group + "/" + m.GroupVersionKind.Kind }
	var parts []string
	for _, o := range r.Objects {
		parts = append(parts, kind(o.Kind)+" "+o.Name)
	}
	all := strings.Join(parts, ", ")
	if r.All != nil {
		all = "all " + kind(r.All)
	}
	if r.Key != "" {
		all += " key=" + r.Key
	}
	return all
}
