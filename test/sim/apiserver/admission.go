// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
)

// admitter is the chain of admission plugins.
type admitter struct{ server *Server }

// Handles implements admission.Interface.
func (admitter) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface. The plugins of kube-apiserver run once more if a webhook has changed the object.
func (a admitter) Admit(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	stateOf(ctx).admission = ""
	if operation := attributes.GetOperation(); operation != admission.Create && operation != admission.Update || rules.IsExemptAdmissionConfigurationResource(attributes) {
		return nil
	}
	if name := attributes.GetNamespace(); attributes.GetOperation() == admission.Create && name != "" && attributes.GetResource().Resource != "namespaces" {
		if a.server.namespace(name) == nil {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
	}
	d := &dispatch{server: a.server, attributes: attributes, interfaces: o}
	for _, again := range []bool{false, true} {
		touched, err := admitNode(attributes, a.server.options.Unguarded)
		if err != nil {
			return err
		}
		if again && touched {
			d.due = slices.Clone(d.called)
		}
		if err := d.round(ctx, again); err != nil || !d.changed {
			return err
		}
	}
	return nil
}

// namespace returns a namespace as it is stored, or nil.
func (s *Server) namespace(name string) *corev1.Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := s.tables[corev1.Resource("namespaces")].objects[name].(*corev1.Namespace)
	return found
}

// hook is a webhook of a stored configuration.
type hook struct {
	webhook.WebhookAccessor
	id   string
	spec admissionregistrationv1.MutatingWebhook
}

// hooks caches the webhooks of the stored configurations.
type hooks struct {
	mu    sync.Mutex
	known map[runtime.Object][]hook
}

var (
	// accessors has compiled conditions, by the JSON of the webhook without its address: many Servers have the same webhooks.
	accessors sync.Map
	compiler  = sync.OnceValue(func() cel.ConditionCompiler {
		return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	})
	allowAll = authorizerfactory.NewAlwaysAllowAuthorizer()
)

// webhooks returns the webhooks of all stored configurations, in the order of their calls.
func (s *Server) webhooks() []hook {
	s.mu.Lock()
	t := s.tables[admissionregistrationv1.Resource("mutatingwebhookconfigurations")]
	configurations := make([]runtime.Object, 0, len(t.objects))
	for _, key := range t.keys() {
		configurations = append(configurations, t.objects[key])
	}
	s.mu.Unlock()
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	var all []hook
	known := map[runtime.Object][]hook{}
	for _, configuration := range configurations {
		of, ok := s.hooks.known[configuration]
		if !ok {
			of = hooksOf(configuration.(*admissionregistrationv1.MutatingWebhookConfiguration)) //nolint:forcetypeassert // of that table
		}
		known[configuration] = of
		all = append(all, of...)
	}
	s.hooks.known = known
	return all
}

func hooksOf(configuration *admissionregistrationv1.MutatingWebhookConfiguration) []hook {
	var of []hook
	for i, spec := range configuration.DeepCopy().Webhooks {
		bare := spec.DeepCopy()
		bare.ClientConfig = admissionregistrationv1.WebhookClientConfig{}
		id := fmt.Sprintf("%s/%s/%d", configuration.Name, spec.Name, i)
		key, err := json.Marshal(bare)
		if err != nil {
			panic(err) // it was decoded from JSON
		}
		accessor, _ := accessors.LoadOrStore(id+string(key), webhook.NewMutatingWebhookAccessor(id, configuration.Name, bare))
		of = append(of, hook{WebhookAccessor: accessor.(webhook.WebhookAccessor), id: id, spec: spec}) //nolint:forcetypeassert // stored above
	}
	return of
}

// namespaces is the lister of the namespace predicate.
type namespaces struct{ *Server }

// Get implements listers.NamespaceLister.
func (n namespaces) Get(name string) (*corev1.Namespace, error) {
	if found := n.namespace(name); found != nil {
		return found, nil
	}
	return nil, errors.New("the namespace has gone")
}

// List implements listers.NamespaceLister. It is never called.
func (namespaces) List(labels.Selector) ([]*corev1.Namespace, error) { return nil, nil }

// concerns returns the invocation of a webhook for a request, or nil if the webhook must not be called: see ShouldCallHook in
// k8s.io/apiserver.
func (d *dispatch) concerns(ctx context.Context, h hook) (*generic.WebhookInvocation, error) {
	attributes := d.attributes
	if d.versioned != nil {
		attributes = d.versioned
	}
	ofNamespace := &namespace.Matcher{NamespaceLister: namespaces{d.server}}
	matches, failed := ofNamespace.MatchNamespaceSelector(h, attributes)
	if !matches && failed == nil {
		return nil, nil
	}
	matches, failedObject := (&object.Matcher{}).MatchObjectSelector(h, attributes)
	if !matches && failedObject == nil {
		return nil, nil
	}
	invocation := d.matching(h, attributes)
	switch {
	case invocation == nil:
		return nil, nil
	case failed != nil:
		return nil, failed
	case failedObject != nil:
		return nil, failedObject
	case len(h.GetMatchConditions()) == 0:
		return invocation, nil
	}
	if err := d.version(invocation.Kind); err != nil {
		return nil, err
	}
	result := h.GetCompiledMatcher(compiler()).Match(ctx, d.versioned, nil, allowAll)
	if result.Error != nil {
		return nil, apierrors.NewForbidden(attributes.GetResource().GroupResource(), attributes.GetName(), result.Error)
	}
	if !result.Matches {
		return nil, nil
	}
	return invocation, nil
}

// matching returns the invocation for the first rule that matches the request, or, if the webhook accepts equivalent resources, for
// another version of the resource; nil if no rule matches.
func (d *dispatch) matching(h hook, attributes admission.Attributes) *generic.WebhookInvocation {
	resources := []admission.Attributes{attributes}
	if policy := h.GetMatchPolicy(); policy != nil && *policy == admissionregistrationv1.Equivalent {
		for _, resource := range d.interfaces.GetEquivalentResourceMapper().EquivalentResourcesFor(attributes.GetResource(), attributes.GetSubresource()) {
			if resource != attributes.GetResource() {
				resources = append(resources, otherVersion{attributes, resource})
			}
		}
	}
	for i, of := range resources {
		for _, rule := range h.GetRules() {
			if !(&rules.Matcher{Rule: rule, Attr: of}).Matches() {
				continue
			}
			kind := attributes.GetKind()
			if i > 0 {
				kind = d.interfaces.GetEquivalentResourceMapper().KindFor(of.GetResource(), of.GetSubresource())
			}
			return &generic.WebhookInvocation{Webhook: h, Resource: of.GetResource(), Subresource: of.GetSubresource(), Kind: kind}
		}
	}
	return nil
}
