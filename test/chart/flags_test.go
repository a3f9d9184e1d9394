// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// Values can set every flag of the program, and the program accepts all arguments that the chart passes.
func TestEveryFlagHasAValue(t *testing.T) {
	Expect := NewWithT(t).Expect
	changed := everything()
	changed["leaderElection"].(values)["enabled"] = false
	changed["replicaCount"] = 1
	standard, other := arguments(t, nil), arguments(t, changed)
	// Only for the text format.
	other["vmodule"] = arguments(t, values{"logging": values{"vmodule": "node=5,machine=6"}})["vmodule"]
	// Only without a URL for workload clusters.
	other["workload-clusters"] = arguments(t, values{"workloadClusters": values{"enabled": false}})["workload-clusters"]
	flags(t).VisitAll(func(flag *pflag.Flag) {
		if _, ok := own()[flag.Name]; ok {
			return
		}
		Expect(other).To(HaveKey(flag.Name), "no value sets --%s", flag.Name)
		Expect(other[flag.Name]).NotTo(Equal(standard[flag.Name]), "no value changes --%s", flag.Name)
	})
	for name := range own() {
		Expect(flags(t).Lookup(name)).NotTo(BeNil(), "--%s is no flag any more", name)
	}
}

// arguments renders the chart and returns the program's arguments by flag, after the program has checked them.
func arguments(t *testing.T, over values) map[string]string {
	t.Helper()
	Expect := NewWithT(t).Expect
	objects, err := render(t, over)
	Expect(err).NotTo(HaveOccurred())
	options := config.NewOptions()
	fs := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(fs)
	arguments := map[string]string{}
	for _, argument := range container(t, objects)["args"].([]any) {
		name, value, ok := strings.Cut(strings.TrimPrefix(argument.(string), "--"), "=")
		Expect(ok).To(BeTrue(), "%s has no value", argument)
		arguments[name] = value
		Expect(fs.Parse([]string{argument.(string)})).To(Succeed(), "%s", argument)
	}
	_, err = options.Complete()
	Expect(err).NotTo(HaveOccurred())
	return arguments
}

func flags(t *testing.T) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	config.NewOptions().AddFlags(fs)
	return fs
}

// container returns the program's container.
func container(t *testing.T, objects []unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment(t, objects).Object, "spec", "template", "spec", "containers")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(containers).To(HaveLen(1))
	return containers[0].(map[string]any)
}

func deployment(t *testing.T, objects []unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	for i := range objects {
		if objects[i].GetKind() == "Deployment" {
			return &objects[i]
		}
	}
	t.Fatal("the chart renders no Deployment")
	return nil
}
