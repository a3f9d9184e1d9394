// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/fleet"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"kubectl-heirloom": main}) }

// TestScripts runs the plugin as a user does, against API servers in memory with the fleet of testdata/fleet. None of these commands writes
// an object: some are dry runs.
func TestScripts(t *testing.T) {
	kubeconfig := serve(t)
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *fleet.Update, RequireExplicitExec: true, RequireUniqueNames: true, ContinueOnError: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", kubeconfig)
			env.Setenv("HOME", filepath.Dir(kubeconfig)) // the discovery cache is below it
			env.Setenv("BLIND", filepath.Join(filepath.Dir(kubeconfig), "blind"))
			env.Setenv("ROOT", root)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program that must end with an exit code: exits CODE PROGRAM ARGUMENTS...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	code := 0
	if exit != nil {
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%q ends with exit code %d", args[1:], code)
	}
}

// serve serves the fleet until the test ends, and returns the kubeconfig of its management cluster. Cluster prod has a workload cluster;
// the workload cluster of Cluster dev refuses connections. Cluster old, of testdata/legacy, has a workload cluster too. The file blind beside
// it leads to the workload cluster of prod, for a user who may read neither PodDisruptionBudgets nor PersistentVolumes.
func serve(t *testing.T) (kubeconfig string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	paths, err := controlplane.CAPICRDPaths()
	Expect(err).NotTo(HaveOccurred())
	provider, err := controlplane.ProviderCRDPath(t.Context())
	Expect(err).NotTo(HaveOccurred())
	found := envtest.CRDInstallOptions{Paths: append(paths, provider)}
	Expect(envtest.ReadCRDFiles(&found)).To(Succeed())
	for _, crd := range found.CRDs {
		crd.Spec.Conversion = nil // the API server has no conversion webhook
	}
	var complete atomic.Bool
	t.Cleanup(func() { complete.Store(false) })
	start := func(name string, crds []*apiextensionsv1.CustomResourceDefinition) (*httptest.Server, client.Client) {
		server, err := apiserver.New(apiserver.Options{Name: name, CRDs: crds, Stored: func(w apiserver.Write) {
			if complete.Load() {
				t.Errorf("%s: %s %s", name, w.Verb, w.GVR.Resource)
			}
		}})
		Expect(err).NotTo(HaveOccurred())
		served := httptest.NewServer(blinded(server))
		t.Cleanup(served.Close)
		c, err := client.New(server.Client("admin"), client.Options{Mapper: server.Mapper()})
		Expect(err).NotTo(HaveOccurred())
		return served, c
	}
	management, own := start("management", found.CRDs)
	prod, nodes := start("prod", []*apiextensionsv1.CustomResourceDefinition{
		served("policy", "v1", "PodDisruptionBudget", apiextensionsv1.NamespaceScoped),
		served("crd.projectcalico.org", "v1", "BGPPeer", apiextensionsv1.ClusterScoped),
	})
	old, oldNodes := start("old", nil)
	fill(t, own, nodes, "fleet", "kubectl", "kubectl-edit", "heirloom", "capi-topology")
	fill(t, own, oldNodes, "legacy", "kubectl", "kubelet", "kubectl-label", "kyverno")
	for cluster, url := range map[string]string{"fleet/prod": prod.URL, "fleet/dev": "http://127.0.0.1:1", "legacy/old": old.URL} {
		namespace, name, _ := strings.Cut(cluster, "/")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": config(url)}}
		Expect(own.Create(t.Context(), secret)).To(Succeed())
	}
	complete.Store(true)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, config(management.URL), 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(filepath.Dir(kubeconfig), "blind"), config(prod.URL+"/blind"), 0o600)).To(Succeed())
	return kubeconfig
}

// blinded also serves an API server below /blind, where nobody may read PodDisruptionBudgets and PersistentVolumes.
func blinded(server http.Handler) http.Handler {
	all := http.NewServeMux()
	all.Handle("/", server)
	all.Handle("/blind/", http.StripPrefix("/blind", server))
	for _, kind := range []string{"/apis/policy/v1/poddisruptionbudgets", "/api/v1/persistentvolumes"} {
		all.HandleFunc("/blind"+kind, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	}
	return all
}

// served serves a kind that the API server in memory has not by itself.
func served(group, version, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
		}}},
	}
	return crd
}

func config(url string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: prod, clusters: [{name: c, cluster: {server: "%s"}}], users: [{name: u, user: {}}],
		contexts: [{name: prod, context: {cluster: c, user: u, namespace: fleet}}, {name: test, context: {cluster: c, user: u}}]}`, url)
}

// fill applies the objects of a directory in testdata, each file by the field manager of its name.
func fill(t *testing.T, management, nodes client.Client, dir string, managers ...string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	uids := map[string]types.UID{}
	for _, manager := range managers {
		for _, object := range fleet.Objects(t, filepath.Join("testdata", dir, manager+".yaml")) {
			u := object.(*unstructured.Unstructured) //nolint:forcetypeassert // it panics
			to := management
			switch u.GetKind() {
			case "Node", "Pod", "PodDisruptionBudget", "BGPPeer", "PersistentVolume":
				to = nodes
			}
			owners := u.GetOwnerReferences()
			for i := range owners {
				owners[i].UID = cmp.Or(owners[i].UID, uids[owners[i].Name])
			}
			if owners != nil {
				u.SetOwnerReferences(owners)
			}
			status := u.DeepCopy()
			options := []client.ApplyOption{client.FieldOwner(manager), client.ForceOwnership}
			Expect(to.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), options...)).To(Succeed(), "%s %s", u.GetKind(), u.GetName())
			uids[u.GetName()] = u.GetUID()
			if status.Object["status"] != nil {
				Expect(to.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(manager), client.ForceOwnership)).To(Succeed())
			}
		}
	}
}
