// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// fieldManagers are the field managers of an API server for Cluster API's kinds: apimachinery's code, with the schemas of the CRDs.
type fieldManagers map[schema.GroupVersionKind]*upstream.FieldManager

// fieldManagersOnce reads the CRDs once for all tests.
var fieldManagersOnce = sync.OnceValues(newFieldManagers)

// anyControlPlane is a kind whose spec.machineTemplate has the fields of both of Cluster API's contracts.
const anyControlPlane = "AnyControlPlane"

func newFieldManagers() (fieldManagers, error) {
	module, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding Cluster API's CRDs: %w", err)
	}
	managers := fieldManagers{}
	for _, name := range []string{"machines", "machinesets", "machinedeployments"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "core/config/crd/bases/cluster.x-k8s.io_"+name+".yaml"))
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return nil, err
		}
		if err := managers.serve(crd); err != nil {
			return nil, err
		}
		if name == "machinesets" {
			if err := managers.serve(controlPlaneFrom(crd)); err != nil {
				return nil, err
			}
		}
	}
	return managers, nil
}

// controlPlaneFrom makes the CRD of a control plane from the CRD of MachineSets.
func controlPlaneFrom(machineSets *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd := machineSets.DeepCopy()
	crd.Name, crd.Spec.Names = "anycontrolplanes.cluster.x-k8s.io", apiextensionsv1.CustomResourceDefinitionNames{
		Kind: anyControlPlane, ListKind: anyControlPlane + "List", Plural: "anycontrolplanes", Singular: "anycontrolplane",
	}
	for i, version := range crd.Spec.Versions {
		inSpec := version.Schema.OpenAPIV3Schema.Properties["spec"]
		template := inSpec.Properties["template"]
		template.Properties["taints"] = template.Properties["spec"].Properties["taints"]
		template.Properties["nodeDrainTimeout"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		inSpec.Properties = map[string]apiextensionsv1.JSONSchemaProps{"machineTemplate": template}
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = inSpec
	}
	return crd
}

// serve prepares a CRD like an API server: see scopeWithFieldManager in k8s.io/apiextensions-apiserver.
func (m fieldManagers) serve(crd *apiextensionsv1.CustomResourceDefinition) error {
	models := map[string]*spec.Schema{}
	for _, version := range crd.Spec.Versions {
		document, err := builder.BuildOpenAPIV3(crd, version.Name, builder.Options{})
		if err != nil {
			return fmt.Errorf("building the schema of %s: %w", crd.Name, err)
		}
		maps.Copy(models, document.Components.Schemas)
	}
	types, err := upstream.NewTypeConverter(models, false)
	if err != nil {
		return fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
	}
	for _, version := range crd.Spec.Versions {
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		m[kind], err = upstream.NewDefaultCRDFieldManager(types, customResources{}, customResources{}, customResources{}, kind, kind.GroupVersion(), "", nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// updated returns an object after an update, with its managed fields.
func (m fieldManagers) updated(live, object *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	result, err := m[object.GroupVersionKind()].Update(live.DeepCopy(), object.DeepCopy(), manager)
	if err != nil {
		return nil, err
	}
	return result.(*unstructured.Unstructured), nil
}

// applied returns an object after a server-side apply of a configuration.
func (m fieldManagers) applied(live, config *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	result, err := m[config.GroupVersionKind()].Apply(live.DeepCopy(), config.DeepCopy(), manager, force)
	if err != nil {
		return nil, err
	}
	return result.(*unstructured.Unstructured), nil
}

// customResources converts control planes, sets no defaults, and creates empty custom resources.
type customResources struct{}

func (customResources) Default(runtime.Object) {}

func (customResources) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(kind)
	return empty, nil
}

func (customResources) Convert(_, _, _ any) error {
	return fmt.Errorf("field managers do not ask for this")
}

func (customResources) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (customResources) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	if from := in.GetObjectKind().GroupVersionKind(); from.Kind == anyControlPlane && from.GroupVersion() != to {
		return converted(in.(*unstructured.Unstructured), to.(schema.GroupVersion).String())
	}
	return in, nil
}

// converted returns a control plane in another version. The contracts have the drain timeout at different paths, and in different units.
func converted(in *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error) {
	out := in.DeepCopy()
	out.SetAPIVersion(apiVersion)
	older := []string{"spec", "machineTemplate", "nodeDrainTimeout"}
	newer := []string{"spec", "machineTemplate", "spec", "deletion", "nodeDrainTimeoutSeconds"}
	if text, has, _ := unstructured.NestedString(in.Object, older...); has {
		drain, err := time.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(out.Object, older...)
		return out, unstructured.SetNestedField(out.Object, int64(drain.Seconds()), newer...)
	}
	seconds, has, err := unstructured.NestedFieldNoCopy(in.Object, newer...)
	if err != nil || !has {
		return out, err
	}
	unstructured.RemoveNestedField(out.Object, newer...)
	if left, _, _ := unstructured.NestedMap(out.Object, newer[:4]...); len(left) == 0 {
		unstructured.RemoveNestedField(out.Object, newer[:4]...)
	}
	return out, unstructured.SetNestedField(out.Object, fmt.Sprintf("%vs", seconds), older...)
}
