// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	theDeployment = "Deployment heirloom"
	theHook       = "Job heirloom-uninstall"
	pods          = ".spec.template.spec"
)

// meaning has the effect of a value.
type meaning struct {
	name   string
	over   values
	object string // kind and name of the changed object
	path   string // the changed field
	want   string // its new content, as JSON
}

// Each value has its documented effect, in the right field.
func TestWhatValuesMean(t *testing.T) {
	var all []meaning
	for _, of := range [][]meaning{imageMeanings(), podMeanings(), metadataMeanings(), serviceMeanings(), webhookMeanings(), monitorMeanings()} {
		all = append(all, of...)
	}
	rendered := map[string][]unstructured.Unstructured{}
	for _, m := range all {
		t.Run(strings.Join([]string{m.name, m.object, m.path}, " "), func(t *testing.T) {
			key, err := json.Marshal(m.over)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			objects, known := rendered[string(key)]
			if !known {
				objects = renderWithHook(t, m.over)
				rendered[string(key)] = objects
			}
			NewWithT(t).Expect(fieldOf(t, objects, m.object, m.path)).To(MatchJSON(m.want))
		})
	}
}

func renderWithHook(t *testing.T, over values) []unstructured.Unstructured {
	t.Helper()
	objects, err := controlplane.RenderChart(t.Context(), chartDir(t),
		controlplane.ChartOptions{Namespace: releaseNamespace, Values: over, Hooks: true})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objects
}

// fieldOf returns a field of an object as JSON, null if it is missing.
func fieldOf(t *testing.T, objects []unstructured.Unstructured, name, path string) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	query := jsonpath.New(name).AllowMissingKeys(true)
	Expect(query.Parse("{" + path + "}")).To(Succeed())
	for _, object := range objects {
		if object.GetKind()+" "+object.GetName() != name {
			continue
		}
		results, err := query.FindResults(object.Object)
		Expect(err).NotTo(HaveOccurred())
		if len(results[0]) == 0 {
			return "null"
		}
		found, err := json.Marshal(results[0][0].Interface())
		Expect(err).NotTo(HaveOccurred())
		return string(found)
	}
	t.Fatalf("the chart renders no %s", name)
	return ""
}

func imageMeanings() []meaning {
	const image = pods + ".containers[0].image"
	named := func(over values) values {
		over["tag"] = "v9"
		return over
	}
	global := func(global, image values) values { return values{"global": global, "image": named(image)} }
	other := values{"registry": "registry.example.com", "repository": "a/heirloom"}
	return []meaning{
		{"the chart's", values{"image": named(values{})}, theDeployment, image, `"ghcr.io/heirloom-dev/heirloom:v9"`},
		{"another", values{"image": named(other)}, theDeployment, image, `"registry.example.com/a/heirloom:v9"`},
		{"another", values{"image": named(other)}, theHook, image, `"registry.example.com/a/heirloom:v9"`},
		{"no registry", values{"image": named(values{"registry": "", "repository": "heirloom"})}, theDeployment, image, `"heirloom:v9"`},
		{"digest", values{"image": values{"digest": "sha256:" + strings.Repeat("a", 64)}}, theDeployment, image,
			`"ghcr.io/heirloom-dev/heirloom@sha256:` + strings.Repeat("a", 64) + `"`},
		{"global", global(values{"imageRegistry": "global.example.com"}, values{"registry": "registry.example.com"}), theDeployment, image,
			`"global.example.com/heirloom-dev/heirloom:v9"`},
		{"global", global(values{"image": values{"registry": "global.example.com"}}, values{}), theHook, image,
			`"global.example.com/heirloom-dev/heirloom:v9"`},
		{"a mirror that has registries as folders", global(values{"imageRegistry": "mirror.example.com"}, values{"repository": "ghcr.io/heirloom-dev/heirloom"}),
			theDeployment, image, `"mirror.example.com/ghcr.io/heirloom-dev/heirloom:v9"`},
	}
}

// podMeanings returns the meanings for the Pods of both the Deployment and the hook, and for the Pods of only one of them.
func podMeanings() []meaning {
	secrets := values{"imagePullSecrets": []any{"a", values{"name": "b"}}, "global": values{"imagePullSecrets": []any{values{"name": "c"}, "a"}}}
	scheduling := values{
		"nodeSelector": values{"pool": "a"}, "priorityClassName": "own", "tolerations": []any{values{"key": "a"}},
		"global": values{"nodeSelector": values{"pool": "b", "disk": "ssd"}, "priorityClassName": "all", "tolerations": []any{values{"key": "b"}, values{"key": "a"}}},
	}
	names := values{
		"hostNetwork": true, "runtimeClassName": "gvisor", "dnsPolicy": "Default", "dnsConfig": values{"searches": []any{"example.com"}},
		"hostAliases": []any{values{"ip": "192.0.2.1", "hostnames": []any{"api.example.com"}}},
	}
	mount := []any{values{"name": "v", "mountPath": "/v"}}
	extra := values{
		"extraEnv": []any{values{"name": "A", "value": "b"}}, "volumeMounts": mount, "volumes": []any{values{"name": "v", "emptyDir": values{}}},
		"podAnnotations": values{"a": "b"}, "podLabels": values{"a": "b"},
	}
	var all []meaning
	for _, of := range []string{theDeployment, theHook} {
		all = append(all, []meaning{
			{"pull secrets", secrets, of, pods + ".imagePullSecrets", `[{"name": "c"}, {"name": "a"}, {"name": "b"}]`},
			{"none", nil, of, pods + ".imagePullSecrets", `null`},
			{"runtime", names, of, pods + ".runtimeClassName", `"gvisor"`},
			{"names of hosts", names, of, pods + ".dnsPolicy", `"Default"`},
			{"names of hosts", names, of, pods + ".dnsConfig", `{"searches": ["example.com"]}`},
			{"names of hosts", names, of, pods + ".hostAliases", `[{"ip": "192.0.2.1", "hostnames": ["api.example.com"]}]`},
			{"scheduling", scheduling, of, pods + ".nodeSelector", `{"kubernetes.io/os": "linux", "pool": "a", "disk": "ssd"}`},
			{"scheduling", scheduling, of, pods + ".priorityClassName", `"own"`},
			{"scheduling", values{"global": scheduling["global"]}, of, pods + ".priorityClassName", `"all"`},
			{"scheduling", scheduling, of, pods + ".tolerations", `[{"key": "a"}, {"key": "b"}]`},
			{"extra", extra, of, pods + ".containers[0].env[?(@.name=='A')].value", `"b"`},
			{"extra", extra, of, pods + ".containers[0].volumeMounts[?(@.name=='v')].mountPath", `"/v"`},
			{"extra", extra, of, pods + ".volumes[?(@.name=='v')].emptyDir", `{}`},
			{"extra", extra, of, ".spec.template.metadata.annotations.a", `"b"`},
			{"extra", extra, of, ".spec.template.metadata.labels.a", `"b"`},
		}...)
	}
	const env, ofTheLimit = pods + ".containers[0].env", `[{"name": "GOMEMLIMIT", "valueFrom": {"resourceFieldRef": {"divisor": "0", "resource": "limits.memory"}}}]`
	self := values{"certificates": values{"mode": "self"}}
	return append(all, []meaning{
		{"a limit of memory", nil, theDeployment, env, ofTheLimit},
		{"a limit of memory, and a variable for it", values{"extraEnv": []any{values{"name": "GOMEMLIMIT", "value": "512MiB"}}}, theDeployment, env, `[{"name": "GOMEMLIMIT", "value": "512MiB"}]`},
		{"no limit of memory", values{"resources": values{"limits": values{"memory": nil}}}, theDeployment, env, `null`},
		{"no limits", values{"resources": values{"limits": nil}}, theDeployment, env, `null`},
		{"extra", extra, theDeployment, pods + ".containers[0].volumeMounts[0].name", `"serving-certs"`},
		{"a certificate of its own", self, theDeployment, pods + ".volumes", `[{"name": "serving-certs", "emptyDir": {"medium": "Memory"}}]`},
		{"a certificate of its own", self, theDeployment, pods + ".containers[0].volumeMounts",
			`[{"name": "serving-certs", "mountPath": "/tmp/k8s-webhook-server/serving-certs"}]`},
		{"a token", nil, theDeployment, pods + ".automountServiceAccountToken", `null`},
		{"no token", values{"automountServiceAccountToken": false}, theDeployment, pods + ".automountServiceAccountToken", `false`},
		{"a token that must be asked for", values{"serviceAccount": values{"automountServiceAccountToken": false}}, theDeployment,
			pods + ".automountServiceAccountToken", `true`},
		{"a token that must be asked for", values{"serviceAccount": values{"automountServiceAccountToken": false}}, "ServiceAccount heirloom",
			".automountServiceAccountToken", `false`},
		{"the cluster's names from a Node's network", values{"hostNetwork": true}, theDeployment, pods + ".dnsPolicy", `"ClusterFirstWithHostNet"`},
		{"no policy of names", nil, theDeployment, pods + ".dnsPolicy", `null`},
		{"certificate", values{"certificates": values{"certManager": values{"duration": "720h"}}}, "Certificate heirloom-webhook", ".spec.duration", `"720h"`},
		{"no surge on the ports of Nodes", values{"hostNetwork": true}, theDeployment, ".spec.strategy.rollingUpdate", `{"maxUnavailable": 1, "maxSurge": 0}`},
		{"a strategy of the operator's", values{"hostNetwork": true, "strategy": values{"rollingUpdate": values{"maxUnavailable": 2, "maxSurge": 1}}}, theDeployment,
			".spec.strategy.rollingUpdate", `{"maxUnavailable": 2, "maxSurge": 1}`},
		{"revisions", values{"revisionHistoryLimit": 0}, theDeployment, ".spec.revisionHistoryLimit", `0`},
	}...)
}
