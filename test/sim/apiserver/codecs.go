// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
)

// The code below follows k8s.io/apiextensions-apiserver/pkg/apiserver, which cannot be imported without etcd.

type unstructuredTyper struct {
	crdserverscheme.UnstructuredObjectTyper
}

// ObjectKinds implements runtime.ObjectTyper.
func (t unstructuredTyper) ObjectKinds(object runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if _, ok := object.(runtime.Unstructured); !ok {
		return customScheme.ObjectKinds(object)
	}
	return t.UnstructuredObjectTyper.ObjectKinds(object)
}

// Recognizes implements runtime.ObjectTyper.
func (t unstructuredTyper) Recognizes(gvk schema.GroupVersionKind) bool {
	return customScheme.Recognizes(gvk)
}

type unstructuredCreator struct{}

// New implements runtime.ObjectCreater.
func (unstructuredCreator) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object, nil
}

// structuralDefaulter sets the defaults of the schema.
type structuralDefaulter struct{ *prepared }

// Default implements runtime.ObjectDefaulter.
func (d structuralDefaulter) Default(object runtime.Object) {
	u, ok := object.(runtime.Unstructured)
	if kind := object.GetObjectKind().GroupVersionKind(); ok && kind.GroupKind() == d.group {
		defaulting.Default(u.UnstructuredContent(), d.schemas[kind.Version])
	}
}

// customScheme has the types that are sent in addition to custom resources, for all their versions.
var customScheme = func() *runtime.Scheme {
	s, v1 := runtime.NewScheme(), schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.WatchEvent{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}()

// customCodecs read and write the custom resources of a CRD.
type customCodecs struct{ *prepared }

var customMedia = []runtime.SerializerInfo{
	{
		MediaType: "application/json", MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer: customSerializer(json.SerializerOptions{}), PrettySerializer: customSerializer(json.SerializerOptions{Pretty: true}),
		StrictSerializer: customSerializer(json.SerializerOptions{Strict: true}),
		StreamSerializer: &runtime.StreamSerializerInfo{EncodesAsText: true, Serializer: customSerializer(json.SerializerOptions{}), Framer: json.Framer},
	},
	{
		MediaType: "application/yaml", MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true,
		Serializer: customSerializer(json.SerializerOptions{Yaml: true}), StrictSerializer: customSerializer(json.SerializerOptions{Yaml: true, Strict: true}),
	},
}

func customSerializer(options json.SerializerOptions) runtime.Serializer {
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, unstructuredCreator{}, unstructuredTyper{}, options)
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (customCodecs) SupportedMediaTypes() []runtime.SerializerInfo { return customMedia }

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (c customCodecs) EncoderForVersion(encoder runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return versioning.NewCodec(encoder, nil, c.convert, customScheme, customScheme, customScheme, gv, nil, "custom resources")
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c customCodecs) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	strict := false
	if serializer, ok := decoder.(*json.Serializer); ok {
		strict = serializer.IsStrict()
	}
	return versioning.NewCodec(nil, coercingDecoder{decoder, c.prepared, strict}, runtime.UnsafeObjectConvertor(customScheme), customScheme, customScheme,
		structuralDefaulter(c), nil, gv, "custom resources")
}

// coercingDecoder drops fields that the schema does not have.
type coercingDecoder struct {
	delegate runtime.Decoder
	prepared *prepared
	strict   bool
}

// Decode implements runtime.Decoder.
func (d coercingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var found []error
	object, gvk, err := d.delegate.Decode(data, defaults, into)
	if err != nil {
		strict, ok := runtime.AsStrictDecodingError(err)
		if !ok || object == nil {
			return nil, gvk, err
		}
		found = strict.Errors()
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		unknown, err := d.prepared.coerce(u, d.strict)
		if err != nil {
			return nil, gvk, err
		}
		for _, path := range unknown {
			found = append(found, fmt.Errorf("unknown field %q", path))
		}
	}
	if d.strict && len(found) > 0 {
		return object, gvk, runtime.NewStrictDecodingError(found)
	}
	return object, gvk, nil
}

// coerce works like unstructuredSchemaCoercer.apply: it drops unknown fields, and returns their paths if wanted is set.
func (p *prepared) coerce(u *unstructured.Unstructured, wanted bool) ([]string, error) {
	gvk := u.GroupVersionKind()
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: wanted})
	if err != nil {
		return nil, err
	}
	if gvk.GroupKind() == p.group {
		structural := p.schemas[gvk.Version]
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: wanted})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, structural)
		err, paths := objectmeta.CoerceWithOptions(nil, u.Object, structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: wanted})
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, paths...)
	}
	if gvk.Kind != "" {
		u.SetKind(gvk.Kind)
	}
	if version := gvk.GroupVersion().String(); version != "" {
		u.SetAPIVersion(version)
	}
	if found {
		return unknown, objectmeta.SetObjectMeta(u.Object, metadata)
	}
	return unknown, nil
}
