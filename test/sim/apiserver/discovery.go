// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/spec3"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var (
	verbs       = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	statusVerbs = metav1.Verbs{"get", "patch", "update"}
)

// describe answers requests that are not about objects.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch path[0] {
	case "":
		answerJSON(w, metav1.RootPaths{Paths: []string{"/api", "/api/v1", "/apis", "/openapi/v3", "/readyz", "/version"}})
	case "readyz", "livez", "healthz":
		_, _ = w.Write([]byte("ok"))
	case "version":
		answerJSON(w, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64"})
	case "openapi":
		s.describeSchemas(w, r, strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/openapi/v3"), "/"))
	case "api", "apis":
		s.describeGroups(w, r, path)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) describeGroups(w http.ResponseWriter, r *http.Request, path []string) {
	core := path[0] == "api"
	switch {
	case len(path) == 1 && strings.Contains(r.Header.Get("Accept"), aggregatedType):
		w.Header().Set("Content-Type", aggregatedType)
		answerJSON(w, s.aggregated(core))
	case len(path) == 1 && core:
		answerJSON(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case len(path) == 1:
		groups := slices.DeleteFunc(s.groups(), func(g metav1.APIGroup) bool { return g.Name == "" })
		answerJSON(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groups})
	case len(path) == 2 && !core:
		s.describeGroup(w, r, path[1])
	default:
		gv, _ := schema.ParseGroupVersion(strings.Join(path[1:], "/"))
		s.describeResources(w, r, gv)
	}
}

func answerJSON(w http.ResponseWriter, content any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	_ = json.NewEncoder(w).Encode(content)
}

// groups returns the API groups in the order of kinds. The versions of a group are in the order of their priority.
func (s *Server) groups() []metav1.APIGroup {
	var groups []metav1.APIGroup
	for _, k := range s.kinds {
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == k.gvr.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, metav1.APIGroup{Name: k.gvr.Group})
		}
		of := metav1.GroupVersionForDiscovery{GroupVersion: k.gvr.GroupVersion().String(), Version: k.gvr.Version}
		if !slices.Contains(groups[i].Versions, of) {
			groups[i].Versions = append(groups[i].Versions, of)
		}
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		groups[i].PreferredVersion = groups[i].Versions[0]
	}
	return groups
}

func (s *Server) describeGroup(w http.ResponseWriter, r *http.Request, name string) {
	for _, group := range s.groups() {
		if group.Name == name {
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			answerJSON(w, group)
			return
		}
	}
	http.NotFound(w, r)
}

func (s *Server) describeResources(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.gvr.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.gvr.Resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.gvk.Kind, Verbs: verbs, ShortNames: k.short, Categories: k.categories,
		})
		if k.status != nil {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.gvr.Resource + "/status", Namespaced: k.namespaced, Kind: k.gvk.Kind, Verbs: statusVerbs})
		}
	}
	if len(list.APIResources) == 0 {
		http.NotFound(w, r)
		return
	}
	answerJSON(w, list)
}

// aggregated returns the aggregated discovery of the core group, or of all other groups.
func (s *Server) aggregated(core bool) apidiscoveryv2.APIGroupDiscoveryList {
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, group := range s.groups() {
		if core != (group.Name == "") {
			continue
		}
		described := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.Name}}
		for _, of := range group.Versions {
			resources := apidiscoveryv2.APIVersionDiscovery{Version: of.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for _, k := range s.kinds {
				if k.gvr.Group == group.Name && k.gvr.Version == of.Version {
					resources.Resources = append(resources.Resources, k.described())
				}
			}
			described.Versions = append(described.Versions, resources)
		}
		list.Items = append(list.Items, described)
	}
	return list
}

func (k *kind) described() apidiscoveryv2.APIResourceDiscovery {
	of := &metav1.GroupVersionKind{Group: k.gvk.Group, Version: k.gvk.Version, Kind: k.gvk.Kind}
	d := apidiscoveryv2.APIResourceDiscovery{
		Resource: k.gvr.Resource, ResponseKind: of, Scope: apidiscoveryv2.ScopeCluster, SingularResource: k.singular, Verbs: verbs,
		ShortNames: k.short, Categories: k.categories,
	}
	if k.namespaced {
		d.Scope = apidiscoveryv2.ScopeNamespace
	}
	if k.status != nil {
		d.Subresources = []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: of, Verbs: statusVerbs}}
	}
	return d
}

// document is the published OpenAPI document of a group version.
type document struct {
	gv   schema.GroupVersion
	json []byte
	hash string
}

var documents sync.Map // from the group version and its CRDs to func() document

// documents returns the documents of all custom resources. They are computed on demand, once for all Servers.
func (s *Server) documents() []document {
	byVersion := map[schema.GroupVersion][]*prepared{}
	var order []schema.GroupVersion
	for _, p := range s.custom {
		for name := range p.documents {
			gv := schema.GroupVersion{Group: p.group.Group, Version: name}
			if byVersion[gv] = append(byVersion[gv], p); len(byVersion[gv]) == 1 {
				order = append(order, gv)
			}
		}
	}
	slices.SortFunc(order, func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
	var all []document
	for _, gv := range order {
		once, _ := documents.LoadOrStore(fmt.Sprint(gv, byVersion[gv]), sync.OnceValue(func() document { return newDocument(gv, byVersion[gv]) }))
		all = append(all, once.(func() document)()) //nolint:forcetypeassert // stored above
	}
	return all
}

func newDocument(gv schema.GroupVersion, of []*prepared) document {
	var parts []*spec3.OpenAPI
	for _, p := range of {
		parts = append(parts, p.documents[gv.Version])
	}
	merged, err := builder.MergeSpecsV3(parts...)
	if err != nil {
		panic(err) // a real API server would not publish it either
	}
	content, err := json.Marshal(merged)
	if err != nil {
		panic(err)
	}
	return document{gv: gv, json: content, hash: fmt.Sprintf("%X", sha256.Sum256(content))}
}

// describeSchemas answers with the index of OpenAPI documents, or with a document.
func (s *Server) describeSchemas(w http.ResponseWriter, r *http.Request, name string) {
	type link struct {
		URL string `json:"serverRelativeURL"`
	}
	index := map[string]link{}
	for _, d := range s.documents() {
		path := "apis/" + d.gv.String()
		if path == name {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(d.json)
			return
		}
		index[path] = link{"/openapi/v3/" + path + "?hash=" + d.hash}
	}
	if name != "" {
		http.NotFound(w, r)
		return
	}
	answerJSON(w, map[string]any{"paths": index})
}
