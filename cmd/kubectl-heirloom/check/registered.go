// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	_ "embed" // the chart's webhook configurations
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

//go:generate go run ../../../test/chart/registrations registrations

// The chart's webhook configurations, with its own values and with all others that an operator may set.
var (
	//go:embed registrations/default.yaml
	defaultRegistrations []byte
	//go:embed registrations/others.yaml
	otherRegistrations []byte
)

// What registrations/others.yaml has in place of an operator's values.
const (
	anyNamespace = "any-namespace"
	anyGroup     = "any.group"
)

// expectation is one webhook as the chart has it.
type expectation struct {
	kind string
	// chart is how it is with the chart's own values, others with other values for everything that can be set.
	chart, others admissionv1.MutatingWebhook
}

// expectations returns the chart's webhooks.
func expectations() ([]expectation, error) {
	chart, err := readRegistrations(defaultRegistrations)
	if err != nil {
		return nil, err
	}
	others, err := readRegistrations(otherRegistrations)
	if err != nil {
		return nil, err
	}
	var all []expectation
	for i, c := range chart {
		for _, w := range c.webhooks {
			other, _ := others[i].webhook(w.Name)
			all = append(all, expectation{kind: c.kind, chart: w, others: other})
		}
	}
	return all, nil
}

func readRegistrations(raw []byte) ([]configuration, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var all []configuration
	for {
		// Every field of a validating webhook is one of a mutating webhook, too.
		one := admissionv1.MutatingWebhookConfiguration{}
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the chart's webhook configurations: %w", err)
		}
		all = append(all, configuration{kind: one.Kind, name: one.Name, webhooks: one.Webhooks})
	}
}

func registered(_ context.Context, w *world) Result {
	found, err := w.installation()
	if err == nil {
		err = found.configErr
	}
	if err != nil {
		return unknown("The webhook configurations could not be read: %v", err)
	}
	known, err := w.settings()
	if err != nil {
		known = settings.Settings{}
	}
	var findings []string
	for _, kind := range []string{mutatingKind, validatingKind} {
		findings = append(findings, kindRegistered(kind, found.configurations, found.expected, known)...)
	}
	strange := found.strangers()
	if len(findings) == 0 {
		return ok("All %d webhooks are registered as the chart says.", len(found.expected)).with(strange...)
	}
	const message = "The webhooks are not registered as the chart says."
	if known.Version != "" && !sameMinor(known.Version, w.Plugin) {
		return warning(message).with(findings...).with(strange...).
			next("This plugin knows the chart of %s, and the server is %s. Use the plugin of the server's version.", w.Plugin, known.Version)
	}
	return failed(message).with(findings...).with(strange...).next(`Run "helm upgrade" with the same values; find out who changes the configurations otherwise.`)
}

// kindRegistered returns what is wrong with all configurations of a kind.
func kindRegistered(kind string, all []configuration, expected []expectation, known settings.Settings) []string {
	of := slices.DeleteFunc(slices.Clone(all), func(c configuration) bool { return c.kind != kind })
	if len(of) == 0 {
		return []string{fmt.Sprintf("There is no %s with webhooks of Heirloom.", kind)}
	}
	var findings []string
	for _, c := range of {
		names := map[string]bool{}
		for _, e := range expected {
			if e.kind != kind {
				continue
			}
			names[e.chart.Name] = true
			live, has := c.webhook(e.chart.Name)
			if !has {
				findings = append(findings, fmt.Sprintf("%s: webhook %s is missing", c, e.chart.Name))
				continue
			}
			if differences := e.differences(live, known); len(differences) > 0 {
				findings = append(findings, fmt.Sprintf("%s, webhook %s: %s", c, e.chart.Name, strings.Join(differences, "; ")))
			}
		}
		for _, live := range c.webhooks {
			if !names[live.Name] {
				findings = append(findings, fmt.Sprintf("%s: webhook %s is not the chart's", c, live.Name))
			}
		}
	}
	return findings
}

// differences returns how a webhook differs from the chart's. What an operator may set differs only if the server's settings say
// something else.
func (e expectation) differences(live admissionv1.MutatingWebhook, known settings.Settings) []string {
	want := *e.chart.DeepCopy()
	settled := map[string]bool{}
	if e.others.NamespaceSelector != nil {
		live.NamespaceSelector = withoutExclusions(live.NamespaceSelector)
	}
	if known.Known {
		want.Rules = withGroups(e.others.Rules, known.Config.AdditionalProviderGroups)
		if known.Config.Namespace != "" {
			want.NamespaceSelector = inNamespace(e.others.NamespaceSelector, known.Config.Namespace)
		}
		settled[rulesField], settled[namespaceSelectorField] = true, true
	}
	var all []string
	chart, others, wanted, has := fields(e.chart), fields(e.others), fields(want), fields(live)
	for i, field := range wanted {
		settable := chart[i].value != others[i].value
		switch {
		case has[i].value == field.value, settable && !settled[field.name]:
		case field.name == conditionsField:
			all = append(all, conditionDifferences(want.MatchConditions, live.MatchConditions)...)
		default:
			all = append(all, fmt.Sprintf("%s is %s, and should be %s", field.name, has[i].value, field.value))
		}
	}
	return all
}

// withGroups puts API groups in place of the one that stands for them.
func withGroups(rules []admissionv1.RuleWithOperations, groups []string) []admissionv1.RuleWithOperations {
	var all []admissionv1.RuleWithOperations
	for _, rule := range rules {
		rule := *rule.DeepCopy()
		if i := slices.Index(rule.APIGroups, anyGroup); i >= 0 {
			rule.APIGroups = slices.Replace(rule.APIGroups, i, i+1, groups...)
		}
		all = append(all, rule)
	}
	return all
}

// inNamespace puts a namespace in place of the one that stands for it.
func inNamespace(selector *metav1.LabelSelector, namespace string) *metav1.LabelSelector {
	if selector == nil {
		return nil // that of a kind without a namespace
	}
	selector = selector.DeepCopy()
	for key, value := range selector.MatchLabels {
		selector.MatchLabels[key] = strings.ReplaceAll(value, anyNamespace, namespace)
	}
	return selector
}

// withoutExclusions leaves out the namespaces that an operator keeps from webhooks, which no setting of the server says.
func withoutExclusions(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	selector = selector.DeepCopy()
	selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpNotIn
	})
	return selector
}
