// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"reflect"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var (
	scheme = func() *runtime.Scheme {
		s := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, selectPods} {
			if err := add(s); err != nil {
				panic(err)
			}
		}
		metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
		return s
	}()
	codecs = serializer.NewCodecFactory(scheme)
	// builtinTypes parses the schemas of all built-in kinds.
	builtinTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme) })
)

// podNode is the field by which clients select the Pods of a Node, for example Cluster API when it drains the Node.
const podNode = "spec.nodeName"

func selectPods(s *runtime.Scheme) error {
	return s.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Pod"), func(label, value string) (string, string, error) {
		if label == podNode {
			return label, value, nil
		}
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	})
}

// builtin is a kind that every API server has.
type builtin struct {
	schema.GroupVersion
	kind, plural  string
	short         []string
	namespaced    bool
	status        bool // has the subresource status
	generation    bool
	unconditional bool // a PUT needs no resourceVersion
	upserts       bool // a PUT creates
	// defaults sets the defaults that matter here; the defaults of kube-apiserver are not public.
	defaults func(runtime.Object)
	validate func(runtime.Object) field.ErrorList
}

func builtins() []builtin {
	core, apps, events := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion
	admission, storage := admissionregistrationv1.SchemeGroupVersion, storagev1.SchemeGroupVersion
	return []builtin{
		{GroupVersion: core, kind: "ConfigMap", plural: "configmaps", short: []string{"cm"}, namespaced: true, unconditional: true},
		{GroupVersion: core, kind: "Event", plural: "events", short: []string{"ev"}, namespaced: true, unconditional: true, upserts: true},
		{GroupVersion: core, kind: "Namespace", plural: "namespaces", short: []string{"ns"}, status: true, unconditional: true, defaults: defaultNamespace},
		{GroupVersion: core, kind: "Node", plural: "nodes", short: []string{"no"}, status: true, unconditional: true, defaults: defaultNode, validate: validateNode},
		{GroupVersion: core, kind: "PersistentVolume", plural: "persistentvolumes", short: []string{"pv"}, status: true, unconditional: true},
		{GroupVersion: core, kind: "Pod", plural: "pods", short: []string{"po"}, namespaced: true, status: true, unconditional: true},
		{GroupVersion: core, kind: "Secret", plural: "secrets", namespaced: true, unconditional: true, defaults: defaultSecret},
		{GroupVersion: core, kind: "Service", plural: "services", short: []string{"svc"}, namespaced: true, status: true, unconditional: true},
		{GroupVersion: admission, kind: "MutatingAdmissionPolicy", plural: "mutatingadmissionpolicies", generation: true, defaults: defaultPolicy},
		{GroupVersion: admission, kind: "MutatingAdmissionPolicyBinding", plural: "mutatingadmissionpolicybindings", generation: true},
		{GroupVersion: admission, kind: "MutatingWebhookConfiguration", plural: "mutatingwebhookconfigurations", generation: true, defaults: defaultMutating},
		{GroupVersion: admission, kind: "ValidatingWebhookConfiguration", plural: "validatingwebhookconfigurations", generation: true},
		{GroupVersion: apiextensionsv1.SchemeGroupVersion, kind: "CustomResourceDefinition", plural: "customresourcedefinitions", short: []string{"crd", "crds"}, status: true, generation: true},
		{GroupVersion: apps, kind: "DaemonSet", plural: "daemonsets", short: []string{"ds"}, namespaced: true, status: true, generation: true, unconditional: true},
		{GroupVersion: apps, kind: "Deployment", plural: "deployments", short: []string{"deploy"}, namespaced: true, status: true, generation: true, unconditional: true},
		{GroupVersion: coordinationv1.SchemeGroupVersion, kind: "Lease", plural: "leases", namespaced: true, upserts: true},
		{GroupVersion: events, kind: "Event", plural: "events", short: []string{"ev"}, namespaced: true, unconditional: true, upserts: true},
		{GroupVersion: storage, kind: "VolumeAttachment", plural: "volumeattachments", status: true},
	}
}

func (s *Server) serveBuiltin(b builtin) error {
	gvk, gvr := b.WithKind(b.kind), b.WithResource(b.plural)
	k := &kind{gvr: gvr, gvk: gvk, singular: strings.ToLower(b.kind), short: b.short, namespaced: b.namespaced, table: s.tableOf(gvr)}
	main, err := b.endpoint(s, "")
	if err != nil {
		return err
	}
	if k.main = main; b.status {
		if k.status, err = b.endpoint(s, "status"); err != nil {
			return err
		}
	}
	s.add(k)
	return nil
}

func (b builtin) endpoint(s *Server, subresource string) (*endpoint, error) {
	gvk, gvr := b.WithKind(b.kind), b.WithResource(b.plural)
	defaulter := builtinDefaulter{b.defaults}
	schemas := managedfields.NewDeducedTypeConverter()
	if b.GroupVersion != apiextensionsv1.SchemeGroupVersion {
		schemas = builtinTypes()
	}
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	if b.status {
		kept := "status"
		if subresource != "" {
			kept = "spec"
		}
		reset = fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
			fieldpath.APIVersion(b.String()): fieldpath.NewSet(fieldpath.MakePathOrDie(kept)),
		})
	}
	fields, err := managedfields.NewDefaultFieldManager(schemas, scheme, defaulter, scheme, gvk, b.GroupVersion, subresource, reset)
	if err != nil {
		return nil, err
	}
	kinds := runtime.NewEquivalentResourceRegistry()
	kinds.RegisterKindFor(gvr, subresource, gvk)
	return &endpoint{
		patchTypes: append([]string{string(types.StrategicMergePatchType)}, patchTypes...),
		strategy:   builtinStrategy{common: common{s}, ObjectTyper: scheme, builtin: b, subresource: subresource},
		fresh:      func() runtime.Object { return made(gvk) }, freshList: func() runtime.Object { return made(b.WithKind(b.kind + "List")) },
		load: func(o runtime.Object) runtime.Object {
			o = o.DeepCopyObject()
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // in lists, items have none
			return o
		},
		save: func(o runtime.Object) runtime.Object {
			o.GetObjectKind().SetGroupVersionKind(gvk)
			truncate(o)
			return o
		},
		scope: &handlers.RequestScope{
			Namer: handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !b.namespaced}, Serializer: defaultingCodecs{codecs, defaulter},
			ParameterCodec: runtime.NewParameterCodec(scheme), Convertor: scheme, Defaulter: defaulter, Typer: scheme,
			Creater:         scheme, //nolint:misspell // its name
			UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme), Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), EquivalentResourceMapper: kinds,
			FieldManager: fields, Resource: gvr, Kind: gvk, Subresource: subresource, MetaGroupVersion: metav1.SchemeGroupVersion,
			HubGroupVersion: b.GroupVersion, MaxRequestBodyBytes: maxBody,
		},
	}, nil
}

// truncate cuts the times in an object's metadata to whole seconds, as storage does.
func truncate(object runtime.Object) {
	accessor, _ := meta.Accessor(object)
	created := accessor.GetCreationTimestamp()
	accessor.SetCreationTimestamp(created.Rfc3339Copy())
	if deleted := accessor.GetDeletionTimestamp(); deleted != nil {
		accessor.SetDeletionTimestamp(ptr.To(deleted.Rfc3339Copy()))
	}
	for _, entry := range accessor.GetManagedFields() {
		if entry.Time != nil {
			*entry.Time = entry.Time.Rfc3339Copy()
		}
	}
}

const maxBody = 3 << 20

func made(gvk schema.GroupVersionKind) runtime.Object {
	object, err := scheme.New(gvk)
	if err != nil {
		panic(err) // the table has kinds of the scheme only
	}
	return object
}

// builtinDefaulter also sets the defaults that the scheme of clients lacks.
type builtinDefaulter struct{ more func(runtime.Object) }

func (d builtinDefaulter) Default(object runtime.Object) {
	scheme.Default(object)
	if d.more != nil {
		d.more(object)
	}
}

// defaultingCodecs set the defaults of decoded objects.
type defaultingCodecs struct {
	serializer.CodecFactory
	defaulter builtinDefaulter
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c defaultingCodecs) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return defaultingDecoder{c.CodecFactory.DecoderToVersion(decoder, gv), c.defaulter}
}

type defaultingDecoder struct {
	runtime.Decoder
	defaulter builtinDefaulter
}

// Decode implements runtime.Decoder.
func (d defaultingDecoder) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := d.Decoder.Decode(data, gvk, into)
	if object != nil {
		d.defaulter.Default(object)
	}
	return object, kind, err
}

func defaultNamespace(object runtime.Object) {
	if n, ok := object.(*corev1.Namespace); ok {
		if n.Name != "" && n.Labels[corev1.LabelMetadataName] != n.Name {
			metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name)
		}
		n.Status.Phase = corev1.NamespacePhase(orElse(string(n.Status.Phase), string(corev1.NamespaceActive)))
	}
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func defaultSecret(object runtime.Object) {
	if s, ok := object.(*corev1.Secret); ok {
		s.Type = corev1.SecretType(orElse(string(s.Type), string(corev1.SecretTypeOpaque)))
		for key, value := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[key] = []byte(value)
		}
		s.StringData = nil
	}
}

func defaultMutating(object runtime.Object) {
	configuration, ok := object.(*admissionregistrationv1.MutatingWebhookConfiguration)
	if !ok {
		return
	}
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		setDefault(&w.FailurePolicy, admissionregistrationv1.Fail)
		setDefault(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		setDefault(&w.NamespaceSelector, metav1.LabelSelector{})
		setDefault(&w.ObjectSelector, metav1.LabelSelector{})
		setDefault(&w.TimeoutSeconds, 10)
		setDefault(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		if w.ClientConfig.Service != nil {
			setDefault(&w.ClientConfig.Service.Port, 443)
		}
		for j := range w.Rules {
			setDefault(&w.Rules[j].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func defaultPolicy(object runtime.Object) {
	policy, ok := object.(*admissionregistrationv1.MutatingAdmissionPolicy)
	if !ok {
		return
	}
	setDefault(&policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
	if constraints := policy.Spec.MatchConstraints; constraints != nil {
		setDefault(&constraints.MatchPolicy, admissionregistrationv1.Equivalent)
		setDefault(&constraints.NamespaceSelector, metav1.LabelSelector{})
		setDefault(&constraints.ObjectSelector, metav1.LabelSelector{})
		for i := range constraints.ResourceRules {
			setDefault(&constraints.ResourceRules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

// builtinStrategy is the strategy of a built-in kind.
type builtinStrategy struct {
	common
	runtime.ObjectTyper
	builtin
	subresource string
}

func (s builtinStrategy) NamespaceScoped() bool { return s.namespaced }
func (s builtinStrategy) AllowCreateOnUpdate(context.Context) bool {
	return s.upserts && s.subresource == ""
}
func (s builtinStrategy) AllowUnconditionalUpdate(context.Context) bool { return s.unconditional }

func (s builtinStrategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	accessor, _ := meta.Accessor(object)
	if s.generation {
		accessor.SetGeneration(1)
	}
	switch object := object.(type) {
	case *corev1.Namespace:
		object.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		object.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	case *corev1.Node:
		object.Spec.ConfigSource = nil //nolint:staticcheck // kube-apiserver drops it
	default:
		if s.status {
			part(object, "Status").SetZero()
		}
	}
}

func (s builtinStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	switch {
	case s.subresource != "":
		part(object, "Spec").Set(part(old, "Spec"))
	case s.status:
		part(object, "Status").Set(part(old, "Status"))
	}
	accessor, _ := meta.Accessor(object)
	before, _ := meta.Accessor(old)
	if s.generation && s.subresource == "" && !apiequality.Semantic.DeepEqual(content(object), content(old)) {
		accessor.SetGeneration(before.GetGeneration() + 1)
	}
}

// part returns a field of an object of the API.
func part(object runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}

// content returns the part of an object whose changes increase its generation.
func content(object runtime.Object) any {
	for _, name := range []string{"Spec", "Webhooks"} {
		if f := part(object, name); f.IsValid() {
			return f.Interface()
		}
	}
	return nil
}

func (s builtinStrategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	accessor, _ := meta.Accessor(object)
	errs := apivalidation.ValidateObjectMetaAccessor(accessor, s.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if s.validate != nil {
		errs = append(errs, s.validate(object)...)
	}
	return errs
}

func (s builtinStrategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	if s.validate == nil {
		return nil
	}
	accessor, _ := meta.Accessor(object)
	before, _ := meta.Accessor(old)
	errs := append(s.Validate(ctx, object), apivalidation.ValidateObjectMetaAccessorUpdate(accessor, before, field.NewPath("metadata"))...)
	errs = append(errs, s.validate(object)...) // once more, as kube-apiserver does
	if node, ok := old.(*corev1.Node); ok && node.Spec.ProviderID != "" && part(object, "Spec").FieldByName("ProviderID").String() != node.Spec.ProviderID {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "providerID"), `node updates may not change providerID except from "" to valid`))
	}
	return errs
}
