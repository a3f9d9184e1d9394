// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/heirloom-dev/heirloom/pkg/config"
)

// own has the flags that the chart sets itself or leaves alone, with the reasons.
func own() map[string]string {
	const alpha = "behind Kubernetes' gate LoggingAlphaOptions, which nobody can open"
	return map[string]string{
		"kubeconfig":                  "the Pod's ServiceAccount is used",
		"webhook-host":                "a Pod is reached under any of its addresses",
		"webhook-cert-dir":            "where the chart mounts the certificate",
		"webhook-cert-secret":         "the chart grants the rights to one, by name",
		"webhook-cert-dns-names":      "those of the chart's Service",
		"webhook-configuration":       "the chart's own, by name",
		"workload-webhook-key-secret": "the chart grants the rights to one, by name",
		"leader-elect-namespace":      "the Pod's own, where the chart grants the rights",
		"log-text-split-stream":       alpha,
		"log-text-info-buffer-size":   alpha,
		"log-json-split-stream":       alpha,
		"log-json-info-buffer-size":   alpha,
	}
}

// Values can set every flag of the program, and the program accepts the arguments of every installation.
func TestEveryFlagHasAValue(t *testing.T) {
	standard, changed := arguments(t, nil), map[string]bool{}
	for _, over := range installations(t) {
		for name, value := range arguments(t, over) {
			changed[name] = changed[name] || value != standard[name]
		}
	}
	_, flags := newFlags()
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, leaves := own()[flag.Name]; !leaves {
			NewWithT(t).Expect(changed).To(HaveKeyWithValue(flag.Name, true), "no installation in testdata changes --%s", flag.Name)
		}
	})
	for name := range own() {
		NewWithT(t).Expect(flags.Lookup(name)).NotTo(BeNil(), "--%s is no flag any more", name)
	}
}

// The hook looks for the objects of the program, under any release name: it removes nothing of another installation, and leaves nothing.
func TestTheHookKnowsTheProgram(t *testing.T) {
	for name, over := range installations(t) {
		Expect, objects := NewWithT(t).Expect, renderWithHook(t, over)
		for _, job := range ofKinds(objects, "Job") {
			hook := &batchv1.Job{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(job.Object, hook)).To(Succeed())
			for _, flag := range []string{"webhook-configuration", "watch-filter", "namespace"} {
				of := func(pod corev1.PodSpec) []string {
					return slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(arg string) bool { return !strings.HasPrefix(arg, "--"+flag+"=") })
				}
				Expect(of(hook.Spec.Template.Spec)).To(Equal(of(deployment(t, objects).Spec.Template.Spec)), "%s: --%s", name, flag)
			}
		}
	}
}

// arguments returns the program's arguments by flag, after the program has checked them; none of an installation without a Deployment.
func arguments(t *testing.T, over values) map[string]string {
	t.Helper()
	Expect := NewWithT(t).Expect
	objects, err := render(t, over)
	Expect(err).NotTo(HaveOccurred())
	program := deployment(t, objects)
	if program == nil {
		return nil
	}
	options, flags := newFlags()
	arguments := map[string]string{}
	for _, argument := range program.Spec.Template.Spec.Containers[0].Args {
		name, value, ok := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		Expect(ok).To(BeTrue(), "%s has no value", argument)
		arguments[name] = value
		Expect(flags.Parse([]string{argument})).To(Succeed(), argument)
	}
	_, err = options.Complete()
	Expect(err).NotTo(HaveOccurred())
	return arguments
}

func newFlags() (*config.Options, *pflag.FlagSet) {
	options, flags := config.NewOptions(), pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(flags)
	return options, flags
}

// deployment returns the program's Deployment, if there is one.
func deployment(t *testing.T, objects []unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	for _, object := range ofKinds(objects, "Deployment") {
		typed := &appsv1.Deployment{}
		NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)).To(Succeed())
		return typed
	}
	return nil
}
