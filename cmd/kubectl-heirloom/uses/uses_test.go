// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/fleet"
)

const key = "example.com/k"

func of(t *testing.T, kind, text string) Selector {
	t.Helper()
	content := map[string]any{}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), &content)).To(Succeed())
	for _, k := range kinds {
		if k.name == kind {
			found := k.of(&unstructured.Unstructured{Object: content})
			NewWithT(t).Expect(found).To(HaveLen(1))
			return found[0]
		}
	}
	t.Fatalf("kind %s is unknown", kind)
	return Selector{}
}

// The selector decides: an alternative is no requirement, a negation forbids, and another label decides nothing.
func TestEffects(t *testing.T) {
	affinity := func(terms string) string {
		return "{spec: {nodeAffinity: {required: {nodeSelectorTerms: " + terms + "}}}}"
	}
	calico := func(selector string) string { return fmt.Sprintf("{spec: {nodeSelector: %q}}", selector) }
	const pv, peer = "PersistentVolume", "BGPPeer"
	for _, test := range []struct {
		kind, object string
		// any, a and b are the effects of the removal of the label with any value, with value a, and with value b; ab is the effect of the change
		// from a to b.
		any, a, b, ab Effect
	}{
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: In, values: [a]}]}]"), Requires, Requires, "", Requires},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: In, values: [a, b]}]}]"), Requires, Requires, Requires, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: NotIn, values: [a]}]}]"), Forbids, Forbids, "", Forbids},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Exists}]}]"), Requires, Requires, Requires, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: DoesNotExist}]}]"), Forbids, Forbids, Forbids, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Gt, values: ['5']}]}]"), Requires, "", "", ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Lt, values: ['5']}]}]"), Requires, "", "", ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Exists}, {key: other, operator: Exists}]}]"), Requires, Requires, Requires, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Exists}]}, {matchExpressions: [{key: other, operator: Exists}]}]"), Alternative, Alternative, Alternative, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]"), Alternative, Alternative, Alternative, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Exists}]}, {}]"), Requires, Requires, Requires, ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k2, operator: Exists}]}]"), "", "", "", ""},
		{pv, affinity("[{matchExpressions: [{key: example.com/k, operator: Like}]}]"), Unknown, Unknown, Unknown, Unknown},
		{pv, affinity("example.com/k"), Unknown, Unknown, Unknown, Unknown},

		{peer, calico("has(example.com/k)"), Requires, Requires, Requires, ""},
		{peer, calico("!has(example.com/k)"), Forbids, Forbids, Forbids, ""},
		{peer, calico("!!has(example.com/k)"), Requires, Requires, Requires, ""},
		{peer, calico("example.com/k == 'a'"), Requires, Requires, "", Requires},
		{peer, calico(`example.com/k != "a"`), Forbids, Forbids, "", Forbids},
		{peer, calico("example.com/k in {'a', 'b'}"), Requires, Requires, Requires, ""},
		{peer, calico("example.com/k not in {'a'}"), Forbids, Forbids, "", Forbids},
		{peer, calico("example.com/k in {}"), "", "", "", ""},
		{peer, calico("example.com/k contains 'a'"), Requires, Requires, "", Requires},
		{peer, calico("example.com/k starts with 'b'"), Requires, "", Requires, Forbids},
		{peer, calico("example.com/k ends with 'x'"), Requires, "", "", ""},
		{peer, calico("has(example.com/k) || has(other)"), Alternative, Alternative, Alternative, ""},
		{peer, calico("!(has(example.com/k) || has(other))"), Forbids, Forbids, Forbids, ""},
		{peer, calico("has(other) && (!has(x) || example.com/k == 'b') && all()"), Alternative, "", Alternative, Alternative},
		{peer, calico("has(other) || all()"), "", "", "", ""},
		{peer, calico("global() && has(example.com/k)"), Requires, Requires, Requires, ""},
		{peer, calico("has(example.com/k"), Unknown, Unknown, Unknown, Unknown},
		{peer, calico("example.com/k like 'a'"), Unknown, Unknown, Unknown, Unknown},
		{peer, calico("example.com/k == a"), Unknown, Unknown, Unknown, Unknown},
		{peer, calico("example.com/k =~ 'a'"), Unknown, Unknown, Unknown, Unknown},
		{peer, calico("has(example.com/k) has(x)"), Unknown, Unknown, Unknown, Unknown},
		{peer, calico("example.com/k in {'a'"), Unknown, Unknown, Unknown, Unknown},
	} {
		t.Run(test.kind+" "+test.object, func(t *testing.T) {
			s, a, b := of(t, test.kind, test.object), "a", "b"
			for change, want := range map[Change]Effect{
				{Key: key}: test.any, {Key: key, Before: &a}: test.a, {Key: key, Before: &b}: test.b, {Key: key, Before: &a, After: &b}: test.ab,
			} {
				use, _ := s.Use(change)
				NewWithT(t).Expect(use.Effect).To(Equal(want), "%v", change)
			}
		})
	}
}

// Whether a label is required and whether a value of it is required are two questions.
func TestEffectsOfOneValue(t *testing.T) {
	a, in := "a", "{key: example.com/k, operator: In, values: [%s]}"
	for terms, want := range map[string]Effect{
		fmt.Sprintf("[{matchExpressions: [%s]}]", fmt.Sprintf(in, "a")):                                                 Requires,
		fmt.Sprintf("[{matchExpressions: [%s]}]", fmt.Sprintf(in, "a, b")):                                              Alternative,
		fmt.Sprintf("[{matchExpressions: [%s]}, {matchExpressions: [%s]}]", fmt.Sprintf(in, "a"), fmt.Sprintf(in, "b")): Alternative,
		fmt.Sprintf("[{matchExpressions: [%s, %s]}]", fmt.Sprintf(in, "a, b"), fmt.Sprintf(in, "a, c")):                 Requires,
		fmt.Sprintf("[{matchExpressions: [%s, %s]}]", fmt.Sprintf(in, "a"), fmt.Sprintf(in, "b")):                       Requires, // no Node matches
		fmt.Sprintf("[{matchExpressions: [%s, {key: example.com/k, operator: DoesNotExist}]}]", fmt.Sprintf(in, "a")):   Requires,
		"[{matchExpressions: [{key: example.com/k, operator: Exists}]}]":                                                Requires,
		fmt.Sprintf("[{matchExpressions: [%s]}]", fmt.Sprintf(in, "b")):                                                 "",
	} {
		s := of(t, "PersistentVolume", "{spec: {nodeAffinity: {required: {nodeSelectorTerms: "+terms+"}}}}")
		use, _ := s.Use(Change{Key: key, Before: &a, OfValue: true})
		NewWithT(t).Expect(use.Effect).To(Equal(want), terms)
	}
}

// server serves the objects of testdata/cluster.yaml, and no other kinds.
func server(t *testing.T) client.WithWatch {
	t.Helper()
	objects, mapper := fleet.Objects(t, filepath.Join("testdata", "cluster.yaml")), meta.NewDefaultRESTMapper(nil)
	for _, object := range objects {
		mapper.Add(object.GetObjectKind().GroupVersionKind(), meta.RESTScopeNamespace)
	}
	return interceptor.NewClient(fleet.Server(objects...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			gvk := into.GetObjectKind().GroupVersionKind()
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
			if _, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
				return err
			}
			return c.List(ctx, into, options...)
		},
	})
}

// Each kind of dependants has an object in testdata/cluster.yaml, named by the effect, or by the answer that it does not belong to.
func TestEachKindOfDependants(t *testing.T) {
	g, value := NewWithT(t), "c"
	found, err := Find(t.Context(), server(t), types.NamespacedName{Namespace: "fleet", Name: "prod"}, Change{Key: key}, Change{Key: key, Before: &value})
	g.Expect(err).NotTo(HaveOccurred())
	text := ""
	for i, title := range []string{"any value", "value c"} {
		text += title + "\n"
		for _, d := range found[i] {
			g.Expect(d.Cluster).To(Equal("fleet/prod"))
			for _, use := range d.Uses {
				text += fmt.Sprintf("  %s %s/%s/%s: %s %s (%s)\n", d.APIVersion, d.Kind, d.Namespace, d.Name, use.Effect, use.Expression, use.Field)
			}
		}
	}
	fleet.Golden(t, "cluster", text)
	seen := map[string]bool{}
	for _, d := range found[0] {
		seen[d.groupKind().String()] = true
	}
	for _, k := range kinds {
		var names []string
		for _, version := range k.versions {
			names = append(names, schema.FromAPIVersionAndKind(version, k.name).GroupKind().String())
		}
		g.Expect(seen).To(HaveKey(BeElementOf(names)), "testdata/cluster.yaml has an object of each kind")
	}
}

// A kind that cannot be read hides no other. If the API server does not answer, it is asked once.
func TestUnreadKinds(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	find := func(answer error) ([][]Dependant, error) {
		asked = 0
		reader := interceptor.NewClient(server(t), fleet.Asks(func(request string) error {
			if asked++; request == "list DeploymentList" {
				return answer
			}
			return nil
		}))
		return Find(t.Context(), reader, types.NamespacedName{}, Change{Key: key})
	}
	found, err := find(apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", nil))
	g.Expect(err).To(MatchError(HavePrefix("listing objects of kind Deployment: deployments is forbidden")))
	g.Expect(found[0]).To(ContainElement(HaveField("Kind", "PersistentVolume")))

	_, err = find(context.DeadlineExceeded)
	g.Expect(err).To(MatchError(context.DeadlineExceeded))
	g.Expect(asked).To(Equal(1))
}

// A list of many Pods comes in pages.
func TestLongLists(t *testing.T) {
	const pods = 1200
	largest := int64(0)
	paged := interceptor.NewClient(fleet.Server().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			list, by := into.(*unstructured.UnstructuredList), (&client.ListOptions{}).ApplyOptions(options) //nolint:forcetypeassert // it panics
			if list.GetKind() != "PodList" {
				return nil
			}
			from, _ := strconv.Atoi(by.Continue) // 0 for the first page
			for i := from; i < min(pods, from+int(by.Limit)); i++ {
				pod := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{key: "a"}}}}
				pod.SetName(strconv.Itoa(i))
				list.Items = append(list.Items, pod)
			}
			if largest = max(largest, by.Limit); from+int(by.Limit) < pods {
				list.SetContinue(strconv.Itoa(from + int(by.Limit)))
			}
			return nil
		},
	})
	found, err := Find(t.Context(), paged, types.NamespacedName{}, Change{Key: key})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found[0]).To(HaveLen(pods))
	g.Expect(largest).To(BeNumerically("<=", 500))
}

// Tenants of a workload cluster choose expressions and the names of controllers. Neither can forge a line of the answer.
func TestTenantsForgeNoLine(t *testing.T) {
	g := NewWithT(t)
	d := Dependant{Kind: "BGPPeer", Name: "a", Uses: []Use{{Effect: Requires, Expression: "has(x) ||\n\x1b[2Jhas(y)\a\u202e"}}}
	g.Expect(d.String()).To(Equal(`BGPPeer/a requires has(x) || ^[[2Jhas(y)^G\u202e`))
	d.Namespace = "default"
	g.Expect(d.String()).To(HavePrefix("BGPPeer/a in namespace default requires "))
	pod := object{Dependant: Dependant{Kind: "Pod", Name: "p"}, controller: &metav1.OwnerReference{Kind: "Rollout", Name: "r\nx"}}
	g.Expect(pod.top(map[string]*object{pod.id(): &pod}).Name).To(Equal("p"))
}
