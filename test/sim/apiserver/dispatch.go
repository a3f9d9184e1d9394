// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the library with which the API server applies the patches of webhooks
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/admission"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"
)

// dispatch calls the webhooks for one request: see mutatingDispatcher in k8s.io/apiserver.
type dispatch struct {
	server     *Server
	attributes admission.Attributes
	interfaces admission.ObjectInterfaces
	versioned  *admission.VersionedAttributes
	changed    bool
	// called has the webhooks that may be called again, due the webhooks that must be called again.
	called, due []string
}

type otherVersion struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (o otherVersion) GetResource() schema.GroupVersionResource { return o.resource }

func changed(before, after runtime.Object) bool {
	return !apiequality.Semantic.DeepEqual(before, after)
}

// version converts the object to a version.
func (d *dispatch) version(gvk schema.GroupVersionKind) (err error) {
	if d.versioned != nil {
		return admission.ConvertVersionedAttributes(d.versioned, gvk, d.interfaces)
	}
	for _, object := range []runtime.Object{d.attributes.GetObject(), d.attributes.GetOldObject()} {
		if object != nil {
			object.GetObjectKind().SetGroupVersionKind(d.attributes.GetKind())
		}
	}
	d.versioned, err = admission.NewVersionedAttributes(d.attributes, gvk, d.interfaces)
	return err
}

// round calls all webhooks that match, in the second round only the webhooks that are due.
func (d *dispatch) round(ctx context.Context, again bool) error {
	d.versioned = nil
	for _, h := range d.server.webhooks() {
		invocation, err := d.concerns(ctx, h)
		if err != nil {
			return err
		}
		if invocation == nil || again && !slices.Contains(d.due, h.id) {
			continue
		}
		if err := d.version(invocation.Kind); err != nil {
			return apierrors.NewInternalError(err)
		}
		changed, err := d.ask(ctx, h, invocation)
		if changed {
			d.changed, d.due = true, slices.Clone(d.called)
		}
		if policy := h.spec.ReinvocationPolicy; policy != nil && *policy == admissionregistrationv1.IfNeededReinvocationPolicy && !slices.Contains(d.called, h.id) {
			d.called = append(d.called, h.id)
		}
		if err := d.verdict(ctx, h, err); err != nil {
			return err
		}
	}
	if d.versioned == nil || !d.versioned.Dirty {
		return nil
	}
	object := d.versioned.VersionedObject.Object()
	if _, ok := object.(*unstructured.Unstructured); !ok {
		reflect.ValueOf(d.attributes.GetObject()).Elem().Set(reflect.ValueOf(object).Elem())
		return nil
	}
	return d.interfaces.GetObjectConvertor().Convert(object, d.attributes.GetObject(), nil)
}

// verdict returns the error of the request for an error of a webhook, according to the failure policy.
func (d *dispatch) verdict(ctx context.Context, h hook, err error) error {
	heirloom := strings.Contains(h.id, "heirloom")
	if now := stateOf(ctx); heirloom && now.admission == "" {
		now.admission = "reached"
	}
	var calling *webhookutil.ErrCallingWebhook
	var rejection *webhookutil.ErrWebhookRejection
	switch {
	case errors.As(err, &rejection):
		return rejection.Status
	case !errors.As(err, &calling):
		return err
	}
	if heirloom {
		stateOf(ctx).admission = "failed"
	}
	if policy := h.spec.FailurePolicy; policy == nil || *policy != admissionregistrationv1.Ignore {
		return apierrors.NewInternalError(err)
	}
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	return nil
}

func calling(h hook, what string, err error) error {
	return &webhookutil.ErrCallingWebhook{WebhookName: h.spec.Name, Reason: fmt.Errorf("%s: %w", what, err), Status: apierrors.NewServiceUnavailable(what)}
}

// ask calls a webhook and applies its patch. It reports whether the patch changes the object.
func (d *dispatch) ask(ctx context.Context, h hook, invocation *generic.WebhookInvocation) (bool, error) {
	if effects := h.spec.SideEffects; d.attributes.IsDryRun() && (effects == nil ||
		*effects != admissionregistrationv1.SideEffectClassNone && *effects != admissionregistrationv1.SideEffectClassNoneOnDryRun) {
		return false, webhookerrors.NewDryRunUnsupportedErr(h.spec.Name)
	}
	d.server.mu.Lock()
	uid := d.server.uid()
	d.server.mu.Unlock()
	review := webhookrequest.CreateV1AdmissionReview(uid, d.versioned, invocation)
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return false, calling(h, "could not create admission objects", err)
	}
	if err := d.server.turnOf(ctx, "admit", "#"+h.spec.Name); err != nil {
		return false, err
	}
	answered, err := d.call(ctx, h, body)
	if err != nil {
		return false, calling(h, "failed to call webhook", err)
	}
	response := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(answered, response); err != nil {
		return false, calling(h, "failed to call webhook", err)
	}
	result, err := webhookrequest.VerifyAdmissionResponse(uid, true, response)
	if err != nil {
		return false, calling(h, "received invalid webhook response", err)
	}
	for _, text := range result.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	if !result.Allowed {
		return false, &webhookutil.ErrWebhookRejection{Status: webhookerrors.ToStatusErr(h.spec.Name, result.Result)}
	}
	return d.apply(h, result)
}

func (d *dispatch) call(ctx context.Context, h hook, body []byte) ([]byte, error) {
	if d.server.options.Webhook == nil {
		return nil, errors.New("no webhook can be reached")
	}
	if seconds := h.spec.TimeoutSeconds; seconds != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*seconds)*time.Second)
		defer cancel()
	}
	spec := h.spec
	spec.ClientConfig = withTimeout(ctx, spec.ClientConfig)
	return d.server.options.Webhook(ctx, spec, body)
}

// withTimeout adds the timeout of the API server, in whole seconds, to the address.
func withTimeout(ctx context.Context, to admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.WebhookClientConfig {
	deadline, ok := ctx.Deadline()
	if !ok {
		return to
	}
	seconds := (time.Until(deadline) + time.Second - 1).Truncate(time.Second)
	said := func(address *string) *string { return ptr.To(ptr.Deref(address, "") + "?timeout=" + seconds.String()) }
	if to.URL != nil {
		to.URL = said(to.URL)
	} else if to.Service != nil {
		to.Service = to.Service.DeepCopy()
		to.Service.Path = said(to.Service.Path)
	}
	return to
}

func (d *dispatch) apply(h hook, result *webhookrequest.AdmissionResponse) (bool, error) {
	if len(result.Patch) == 0 {
		return false, nil
	}
	patch, err := jsonpatch.DecodePatch(result.Patch)
	if err != nil {
		return false, calling(h, "received undecodable patch in webhook response", err)
	}
	if len(patch) == 0 {
		return false, nil
	}
	if result.PatchType != admissionv1.PatchTypeJSONPatch {
		return false, &webhookutil.ErrCallingWebhook{WebhookName: h.spec.Name, Reason: fmt.Errorf("unsupported patch type %q", result.PatchType)}
	}
	format := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, d.interfaces.GetObjectCreater(), d.interfaces.GetObjectTyper(), serializer.SerializerOptions{})
	object := d.versioned.VersionedObject.Object()
	before, err := runtime.Encode(format, object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	into := runtime.Object(&unstructured.Unstructured{})
	if _, ok := object.(*unstructured.Unstructured); !ok {
		into = made(d.versioned.VersionedKind)
	}
	patched, _, err := format.Decode(after, nil, into)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	differs := changed(object, patched)
	d.versioned.UpdateObject(patched)
	d.interfaces.GetObjectDefaulter().Default(patched)
	return differs, nil
}
