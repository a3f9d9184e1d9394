// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// prepared has the data that is computed from a CRD, once for all Servers.
type prepared struct {
	crd             *apiextensionsv1.CustomResourceDefinition
	group           schema.GroupKind
	storage         string
	schemas         map[string]*structuralschema.Structural // by version
	versions        map[string]*preparedVersion
	documents       map[string]*spec3.OpenAPI
	types           managedfields.TypeConverter
	convert, unsafe runtime.ObjectConvertor
}

// preparedVersion has the data of a version of a CRD.
type preparedVersion struct {
	status            bool
	validator, ofStat validation.SchemaValidator
	cel               *cel.Validator
	main, sub         *managedfields.FieldManager
}

var preparedCRDs sync.Map // from *apiextensionsv1.CustomResourceDefinition to func() (*prepared, error)

func prepare(crd *apiextensionsv1.CustomResourceDefinition) (*prepared, error) {
	once, _ := preparedCRDs.LoadOrStore(crd, sync.OnceValues(func() (*prepared, error) { return newPrepared(crd) }))
	return once.(func() (*prepared, error))() //nolint:forcetypeassert // stored above
}

func newPrepared(crd *apiextensionsv1.CustomResourceDefinition) (*prepared, error) {
	crd = established(crd)
	p := &prepared{
		crd: crd, group: schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}, schemas: map[string]*structuralschema.Structural{},
		versions: map[string]*preparedVersion{}, documents: map[string]*spec3.OpenAPI{},
	}
	models := map[string]*spec.Schema{}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			p.storage = version.Name
		}
		document, err := builder.BuildOpenAPIV3(crd, version.Name, builder.Options{})
		if err != nil {
			return nil, fmt.Errorf("building the OpenAPI of version %s: %w", version.Name, err)
		}
		p.documents[version.Name] = document
		maps.Copy(models, document.Components.Schemas)
	}
	var err error
	if p.types, err = managedfields.NewTypeConverter(models, false); err != nil {
		return nil, err
	}
	converters, err := conversion.NewCRConverterFactory(nil, nil)
	if err != nil {
		return nil, err
	}
	if p.convert, p.unsafe, err = converters.NewConverter(crd); err != nil {
		return nil, err
	}
	for _, version := range crd.Spec.Versions {
		if err := p.prepareSchema(version); err != nil {
			return nil, fmt.Errorf("reading the schema of version %s: %w", version.Name, err)
		}
	}
	for _, version := range crd.Spec.Versions {
		if err := p.prepareFields(version.Name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *prepared) prepareSchema(version apiextensionsv1.CustomResourceDefinitionVersion) error {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil); err != nil {
		return err
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return err
	}
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return err
	}
	v := &preparedVersion{status: version.Subresources != nil && version.Subresources.Status != nil, cel: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	if v.validator, _, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return err
	}
	if status, ok := internal.OpenAPIV3Schema.Properties["status"]; ok && v.status {
		if v.ofStat, _, err = validation.NewSchemaValidator(&status); err != nil {
			return err
		}
	}
	p.schemas[version.Name], p.versions[version.Name] = structural, v
	return nil
}

// prepareFields makes the field managers. See scopeWithFieldManager in k8s.io/apiextensions-apiserver.
func (p *prepared) prepareFields(version string) (err error) {
	v := p.versions[version]
	gv := schema.GroupVersion{Group: p.group.Group, Version: version}
	reset, statusReset := map[fieldpath.APIVersion]*fieldpath.Set{}, map[fieldpath.APIVersion]*fieldpath.Set{}
	if v.status {
		reset[fieldpath.APIVersion(gv.String())] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	for name, other := range p.versions {
		if other.status {
			statusReset[fieldpath.APIVersion(p.group.Group+"/"+name)] = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
		}
	}
	newManager := func(subresource string, reset map[fieldpath.APIVersion]*fieldpath.Set) (*managedfields.FieldManager, error) {
		return managedfields.NewDefaultCRDFieldManager(p.types, p.convert, structuralDefaulter{p}, unstructuredCreator{}, gv.WithKind(p.group.Kind), gv,
			subresource, fieldpath.NewExcludeFilterSetMap(reset))
	}
	if v.main, err = newManager("", reset); err != nil {
		return err
	}
	v.sub, err = newManager("status", statusReset)
	return err
}

// established returns a CRD with the status of a served CRD. Conversion only sets the version.
func established(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	scheme.Default(crd)
	names := &crd.Spec.Names
	names.Singular, names.ListKind = orElse(names.Singular, strings.ToLower(names.Kind)), orElse(names.ListKind, names.Kind+"List")
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	crd.Generation = 1
	crd.Status.AcceptedNames = *names
	crd.Status.StoredVersions = nil
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			crd.Status.StoredVersions = append(crd.Status.StoredVersions, version.Name)
		}
	}
	now := metav1.Now()
	crd.Status.Conditions = nil
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: condition, Status: apiextensionsv1.ConditionTrue, Reason: "InMemory", LastTransitionTime: now,
		})
	}
	return crd
}

func (s *Server) serveCRD(crd *apiextensionsv1.CustomResourceDefinition) error {
	p, err := prepare(crd)
	if err != nil {
		return err
	}
	s.custom = append(s.custom, p)
	names := p.crd.Spec.Names
	table := s.tableOf(schema.GroupVersionResource{Group: p.group.Group, Version: p.storage, Resource: names.Plural})
	kinds := runtime.NewEquivalentResourceRegistry()
	for _, version := range p.crd.Spec.Versions {
		gv := schema.GroupVersion{Group: p.group.Group, Version: version.Name}
		kinds.RegisterKindFor(gv.WithResource(names.Plural), "", gv.WithKind(names.Kind))
		if p.versions[version.Name].status {
			kinds.RegisterKindFor(gv.WithResource(names.Plural), "status", gv.WithKind(names.Kind))
		}
	}
	for _, version := range p.crd.Spec.Versions {
		if !version.Served {
			continue
		}
		gv := schema.GroupVersion{Group: p.group.Group, Version: version.Name}
		k := &kind{
			gvr: gv.WithResource(names.Plural), gvk: gv.WithKind(names.Kind), singular: names.Singular, short: names.ShortNames, categories: names.Categories,
			namespaced: p.crd.Spec.Scope == apiextensionsv1.NamespaceScoped, table: table,
			warning: ptr.To(deprecation(p.crd.Spec, version)),
		}
		k.main = p.endpoint(s, k, "", kinds)
		if p.versions[version.Name].status {
			k.status = p.endpoint(s, k, "status", kinds)
		}
		s.add(k)
	}
	return nil
}

// deprecation returns the warning in each answer at a deprecated version, "" at other versions.
func deprecation(of apiextensionsv1.CustomResourceDefinitionSpec, version apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !version.Deprecated || version.DeprecationWarning != nil {
		return ptr.Deref(version.DeprecationWarning, "")
	}
	newest := version
	for _, other := range of.Versions {
		if other.Served && !other.Deprecated && apimachineryversion.CompareKubeAwareVersionStrings(newest.Name, other.Name) < 0 {
			newest = other
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", of.Group, version.Name, of.Names.Kind)
	if newest.Name != version.Name {
		text += fmt.Sprintf("; use %s/%s %s", of.Group, newest.Name, of.Names.Kind)
	}
	return text
}

func (p *prepared) endpoint(s *Server, k *kind, subresource string, kinds runtime.EquivalentResourceMapper) *endpoint {
	v, gv := p.versions[k.gvk.Version], k.gvk.GroupVersion()
	main := customStrategy{common: common{s}, ObjectTyper: unstructuredTyper{}, kind: k, prepared: p, version: v}
	strategy, fields := strategy(main), v.main
	if subresource != "" {
		strategy, fields = statusStrategy{main}, v.sub
	}
	return &endpoint{
		strategy: strategy, patchTypes: patchTypes,
		fresh: func() runtime.Object {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(k.gvk)
			return object
		},
		freshList: func() runtime.Object {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gv.WithKind(p.crd.Spec.Names.ListKind))
			return list
		},
		load: func(o runtime.Object) runtime.Object { return p.in(o.DeepCopyObject(), k.gvk.Version) },
		save: func(o runtime.Object) runtime.Object { return p.in(o, p.storage) },
		clean: func(o runtime.Object) {
			pruning.Prune(custom(o).Object, p.schemas[p.storage], true)
			withoutEmpty(o)
		},
		scope: &handlers.RequestScope{
			Namer: handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !k.namespaced}, Serializer: customCodecs{p},
			ParameterCodec: runtime.NewParameterCodec(scheme), Convertor: p.convert, UnsafeConvertor: p.unsafe,
			Creater:   unstructuredCreator{}, //nolint:misspell // its name
			Defaulter: structuralDefaulter{p}, Typer: unstructuredTyper{}, Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
			EquivalentResourceMapper: kinds, FieldManager: fields, Resource: k.gvr, Kind: k.gvk, Subresource: subresource,
			MetaGroupVersion: metav1.SchemeGroupVersion, HubGroupVersion: gv, MaxRequestBodyBytes: maxBody,
		},
	}
}

// withoutEmpty drops empty fields of the metadata.
func withoutEmpty(object runtime.Object) {
	metadata, _ := custom(object).Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations", "finalizers", "ownerReferences", "managedFields"} {
		if value := reflect.ValueOf(metadata[field]); value.IsValid() && value.Len() == 0 {
			delete(metadata, field)
		}
	}
}

// in converts an object to another version without a webhook. It may change the object.
func (p *prepared) in(object runtime.Object, version string) runtime.Object {
	u := object.(*unstructured.Unstructured) //nolint:forcetypeassert // of a custom resource
	if u.GroupVersionKind().Version == version {
		return u
	}
	u.SetAPIVersion(p.group.Group + "/" + version)
	if _, err := p.coerce(u, false); err != nil {
		panic(err) // it was valid metadata before
	}
	structuralDefaulter{p}.Default(u)
	return u
}
