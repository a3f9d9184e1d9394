// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiextensionscel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel/common"
)

// common has the methods that all strategies share.
type common struct{ server *Server }

// GenerateName implements names.NameGenerator. The names have the length and the characters of real names.
func (c common) GenerateName(base string) string {
	const characters, length = "bcdfghjklmnpqrstvwxz2456789", 5
	c.server.mu.Lock()
	c.server.ids++
	n := c.server.ids * 7_368_787 // consecutive names do not look alike
	c.server.mu.Unlock()
	var suffix strings.Builder
	for range length {
		suffix.WriteByte(characters[n%uint64(len(characters))])
		n /= uint64(len(characters))
	}
	return base[:min(len(base), 63-length)] + suffix.String()
}

// Canonicalize implements rest.RESTCreateStrategy and rest.RESTUpdateStrategy.
func (common) Canonicalize(runtime.Object) {}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (common) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (common) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string { return nil }

// customStrategy works like k8s.io/apiextensions-apiserver/pkg/registry/customresource, which cannot be imported without etcd.
type customStrategy struct {
	common
	runtime.ObjectTyper
	kind     *kind
	prepared *prepared
	version  *preparedVersion
}

func (s customStrategy) NamespaceScoped() bool                       { return s.kind.namespaced }
func (customStrategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (customStrategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func (s customStrategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	u := custom(object)
	if s.version.status {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}

func (s customStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	u, before := custom(object), custom(old)
	if s.version.status {
		if status, ok := before.Object["status"]; ok {
			u.Object["status"] = status
		} else {
			delete(u.Object, "status")
		}
	}
	if !apiequality.Semantic.DeepEqual(withoutMetadata(u), withoutMetadata(before)) {
		u.SetGeneration(before.GetGeneration() + 1)
	}
}

func custom(object runtime.Object) *unstructured.Unstructured {
	return object.(*unstructured.Unstructured) //nolint:forcetypeassert // custom resources are nothing else
}

func withoutMetadata(u *unstructured.Unstructured) map[string]any {
	rest := map[string]any{}
	for key, value := range u.Object {
		if key != "metadata" {
			rest[key] = value
		}
	}
	return rest
}

func (s customStrategy) Validate(ctx context.Context, object runtime.Object) field.ErrorList {
	u, structural := custom(object), s.structural()
	errs := s.validateType(u)
	if len(errs) > 0 {
		return errs
	}
	errs = append(errs, apivalidation.ValidateObjectMetaAccessor(u, s.kind.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, s.version.validator)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, u.Object)...)
	return s.validateRules(ctx, errs, u, nil)
}

func (s customStrategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	u, before, structural := custom(object), custom(old), s.structural()
	errs := s.validateType(u)
	correlated := apiservercel.NewCorrelatedObject(u.Object, before.Object, &model.Structural{Structural: structural})
	if len(errs) == 0 {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(u, before, field.NewPath("metadata"))...)
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, before.Object, s.version.validator, validation.WithRatcheting(correlated))...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, structural, false)...)
	errs = append(errs, s.validateLists(u, before)...)
	return s.validateRules(ctx, errs, u, before, apiextensionscel.WithRatcheting(correlated))
}

func (s customStrategy) structural() *structuralschema.Structural {
	return s.prepared.schemas[s.kind.gvk.Version]
}

// validateLists accepts duplicates in an object that had duplicates before.
func (s customStrategy) validateLists(u, before *unstructured.Unstructured) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, s.structural(), u.Object)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, s.structural(), before.Object)) > 0 {
		return nil
	}
	return errs
}

func (s customStrategy) validateType(u *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if u.GetKind() != s.kind.gvk.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), fmt.Sprintf("must be %v", s.kind.gvk.Kind)))
	}
	if version := s.kind.gvk.GroupVersion().String(); u.GetAPIVersion() != version {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), fmt.Sprintf("must be %v", version)))
	}
	return errs
}

// validateRules evaluates the CEL rules, unless the object has errors that could make a rule fail.
func (s customStrategy) validateRules(ctx context.Context, errs field.ErrorList, u, before *unstructured.Unstructured, options ...apiextensionscel.Option) field.ErrorList {
	if s.version.cel == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	var old any
	if before != nil {
		old = before.Object
	}
	found, _ := s.version.cel.Validate(ctx, nil, s.structural(), u.Object, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, found...)
}

// statusStrategy is the strategy of the subresource status.
type statusStrategy struct{ customStrategy }

func (s statusStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	u := custom(object)
	status, has := u.Object["status"]
	fields := u.GetManagedFields()
	u.Object = custom(old).DeepCopy().Object
	u.SetManagedFields(fields)
	if delete(u.Object, "status"); has {
		u.Object["status"] = status
	}
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	u, before := custom(object), custom(old)
	errs := s.validateType(u)
	correlated := apiservercel.NewCorrelatedObject(u.Object, before.Object, &model.Structural{Structural: s.structural()})
	if len(errs) == 0 {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(u, before, field.NewPath("metadata"))...)
		if status, ok := u.Object["status"]; ok {
			errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before.Object["status"], s.version.ofStat,
				validation.WithRatcheting(correlated.Key("status")))...)
		}
	}
	errs = append(errs, s.validateLists(u, before)...)
	return s.validateRules(ctx, errs, u, before, apiextensionscel.WithRatcheting(correlated))
}
