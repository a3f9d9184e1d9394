// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/yaml"
)

const (
	group = "controlplane.cluster.x-k8s.io"

	taints         = `taints: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [key, effect], items: {type: object, required: [key, effect], properties: {key: {type: string}, effect: {type: string}}}}`
	readinessGates = `readinessGates: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [conditionType], items: {type: object, required: [conditionType], properties: {conditionType: {type: string}}}}`
	metadata       = `metadata: {type: object, properties: {labels: {type: object, additionalProperties: {type: string}}, annotations: {type: object, additionalProperties: {type: string}}}}`
	seconds        = `deletion: {type: object, properties: {nodeDrainTimeoutSeconds: {type: integer}, nodeVolumeDetachTimeoutSeconds: {type: integer}, nodeDeletionTimeoutSeconds: {type: integer}}}`
	durations      = `nodeDrainTimeout: {type: string}, nodeVolumeDetachTimeout: {type: string}, nodeDeletionTimeout: {type: string}`
)

// apiServer serves OpenAPI documents with the API server's code.
type apiServer struct {
	*handler3.OpenAPIService
	// indexes and documents count requests.
	indexes, documents atomic.Int32
	// index and document replace the published answers, if set.
	index, document http.HandlerFunc
}

func newAPIServer() *apiServer {
	return &apiServer{OpenAPIService: handler3.NewOpenAPIService()}
}

// RoundTrip implements http.RoundTripper.
func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, published, instead := &a.documents, a.HandleGroupVersion, a.document
	if !strings.HasPrefix(r.URL.Path, "/openapi/v3/") {
		asked, published, instead = &a.indexes, a.HandleDiscovery, a.index
	}
	asked.Add(1)
	if instead != nil {
		published = instead
	}
	answer := httptest.NewRecorder()
	published(answer, r)
	return answer.Result(), nil
}

// client returns an OpenAPI client like a manager's client, over the network.
func (a *apiServer) client(t *testing.T) openapi.Client {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: "https://server", Transport: a})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client.OpenAPIV3()
}

// serve publishes the CRDs' schemas like an API server: one document for all kinds of a version of our group.
func (a *apiServer) serve(t *testing.T, version string, crds ...*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	Expect := NewWithT(t).Expect
	documents := make([]*spec3.OpenAPI, len(crds))
	for i, crd := range crds {
		var err error
		documents[i], err = builder.BuildOpenAPIV3(crd, version, builder.Options{})
		Expect(err).NotTo(HaveOccurred())
	}
	merged, err := builder.MergeSpecsV3(documents...)
	Expect(err).NotTo(HaveOccurred())
	a.UpdateGroupVersion("apis/"+group+"/"+version, merged)
}

// crd returns the CRD of a provider's control plane; fields are the fields of its spec.
func crd(t *testing.T, kind, version string, fields ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	result := &apiextensionsv1.CustomResourceDefinition{}
	result.Name = plural + "." + group
	result.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{}},
		},
	}
	text := "{openAPIV3Schema: {type: object, properties: {metadata: {type: object}, spec: " + object(fields...) + "}}}"
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(text), result.Spec.Versions[0].Schema)).To(Succeed(), text)
	return result
}

// object returns the schema of an object with these fields.
func object(fields ...string) string {
	return "{type: object, properties: {replicas: {type: integer}, " + strings.Join(fields, ", ") + "}}"
}

// newer and older return the fields of each version of the contract.
func newer() string {
	return "machineTemplate: " + object(metadata, "spec: "+object(taints, readinessGates, seconds))
}

func older() string {
	return "machineTemplate: " + object(metadata, taints, readinessGates, durations)
}

func kindOf(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}
