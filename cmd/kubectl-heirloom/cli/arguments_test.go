// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParseArguments(t *testing.T) {
	key, clusters, choosing := Takes{Key: true}, Takes{Clusters: true}, Takes{Key: true, Choosing: true}
	for _, tc := range []struct {
		takes Takes
		args  string
		// want is "<kind> <name>, … key=<key>", or "all <kind> key=<key>".
		want, wantErr string
	}{
		{key, "node/x", "node x", ""},
		{key, "node/x team", "node x key=team", ""},
		{key, "node/x gpu:NoSchedule", "node x key=gpu:NoSchedule", ""},
		{key, "node/x cluster.x-k8s.io/paused", "node x key=cluster.x-k8s.io/paused", ""},
		{key, "node x cluster.x-k8s.io/paused", "node x key=cluster.x-k8s.io/paused", ""},
		{key, "node/x machine.cluster.x-k8s.io/exclude-node-draining", "node x key=machine.cluster.x-k8s.io/exclude-node-draining", ""},
		{key, "machines.cluster.x-k8s.io/a machines.cluster.x-k8s.io/b", "machines.cluster.x-k8s.io a, machines.cluster.x-k8s.io b", ""},
		{key, "machine/a machineset/b team", "machine a, machineset b key=team", ""},
		{key, "machines a", "machines a", ""},
		{key, "machines a b team", "machines a, machines b key=team", ""},
		{key, "machines", "all machines", ""},
		{choosing, "machines team", "all machines key=team", ""},
		{Takes{}, "node/x team", "", `"team" is not an object: use KIND/NAME or KIND NAME, and -n for its namespace`},
		{Takes{}, "machines a b", "machines a, machines b", ""},
		{key, "", "", "specify an object"},
		{key, "machine/", "", `"machine/" is not an object`},
		{key, "machine/a/b", "", `"machine/a/b" is not an object`},
		{key, "machine/a team machine/b", "", `"team" is not an object`},
		{key, "machine a/b c", "", `"a/b" is not an object`},
		{choosing, "machine/a", "", `name "machine/a" cannot be combined`},
		{choosing, "machine a b", "", `name "a" cannot be combined`},
		{clusters, "", "all cluster", ""},
		{clusters, "clusters", "all clusters", ""},
		{clusters, "prod", "cluster prod", ""},
		{clusters, "prod edge", "cluster prod, cluster edge", ""},
		{clusters, "cluster prod edge", "cluster prod, cluster edge", ""},
		{clusters, "cluster/prod cl/edge Clusters/x.y", "cluster prod, cl edge, Clusters x.y", ""},
		{clusters, "cluster.cluster.x-k8s.io/prod clusters.v1beta2.cluster.x-k8s.io/edge", "cluster.cluster.x-k8s.io prod, clusters.v1beta2.cluster.x-k8s.io edge", ""},
		{clusters, "machine/m", "", `"machine/m" is not a Cluster: use cluster/NAME or NAME, and -n for its namespace`},
		{clusters, "cluster/", "", `"cluster/" is not a Cluster`},
		{clusters, "cluster/a/b", "", `"cluster/a/b" is not an object`},
		{clusters, "cluster.example.com/x", "", `"cluster.example.com/x" is not a Cluster`},
		{Takes{Clusters: true, Choosing: true}, "prod", "", `name "prod" cannot be combined with --selector or --all-namespaces`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			g := NewWithT(t)
			got, err := ParseArguments(strings.Fields(tc.args), tc.takes)
			if tc.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var parts []string
			for _, o := range got.Objects {
				parts = append(parts, o.Kind+" "+o.Name)
			}
			text := strings.Join(parts, ", ")
			if got.All != "" {
				text = "all " + got.All
			}
			if got.Key != "" {
				text += " key=" + got.Key
			}
			g.Expect(text).To(Equal(tc.want))
		})
	}
}

func TestKind(t *testing.T) {
	Expect := NewWithT(t).Expect
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "machine.example.com", Version: "v1", Kind: "Machine"}, {Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}, {Version: "v1", Kind: "Node"},
	} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	for name, want := range map[string]string{
		"machine": "Machine.cluster.x-k8s.io", "Machines": "Machine.cluster.x-k8s.io", "machine.machine.example.com": "Machine.machine.example.com", "node": "Node",
		"machines.v1beta2.cluster.x-k8s.io": "Machine.cluster.x-k8s.io",
	} {
		mapping, err := Kind(mapper, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.GroupVersionKind.GroupKind().String()).To(Equal(want))
	}
	request, err := Arguments{Objects: []Argument{{"machines.cluster.x-k8s.io", "a"}, {"cluster.x-k8s.io", "paused"}}}.Resolve(mapper)
	Expect(err).NotTo(HaveOccurred())
	Expect(request.Objects).To(HaveLen(1))
	Expect(request.Key).To(Equal("cluster.x-k8s.io/paused"))
	_, err = Arguments{Objects: []Argument{{"foo", "x"}}}.Resolve(mapper)
	Expect(err).To(MatchError(`the server doesn't have a resource type "foo"`))
}
