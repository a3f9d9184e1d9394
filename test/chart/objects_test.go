// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// cluster is a real API server with cert-manager's kinds and the Prometheus Operator's.
type cluster struct {
	*controlplane.ControlPlane
	client client.Client
}

// planes are the API servers of all tests.
var planes controlplane.Pool

func TestMain(m *testing.M) {
	code := m.Run()
	if _, err := planes.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: stopping API servers:", err)
		code = 1
	}
	os.Exit(code)
}

// newCluster returns a cluster whose namespaces admit only restricted Pods.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	Expect := NewWithT(t).Expect
	certManager, err := controlplane.CertManagerCRDs()
	Expect(err).NotTo(HaveOccurred())
	operator, err := controlplane.PrometheusOperatorCRDs(t.Context())
	Expect(err).NotTo(HaveOccurred())
	cp, err := planes.Lend(t.Context(), controlplane.Options{CRDPaths: append(operator, certManager)})
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { Expect(cp.GiveBack(context.Background())).To(Succeed()) })
	c, err := client.New(cp.AdminConfig(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{releaseNamespace, fleetNamespace} {
		Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}})).To(Succeed())
	}
	return &cluster{cp.ControlPlane, c}
}

// The API server accepts all rendered objects, including every field, and Pods meet the Pod Security Standard "restricted".
func TestObjectsAreValid(t *testing.T) {
	c := newCluster(t)
	NewWithT(t).Expect(c.client.Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})).To(Succeed())
	outside := values{
		"deployment": values{"enabled": false}, "webhooks": values{"url": "https://127.0.0.1:9443"},
		"certificates": values{"mode": "provided", "provided": values{"caBundle": aCABundle(t)}},
	}
	provided := values{"certificates": values{"mode": "provided", "provided": values{"caBundle": aCABundle(t), "secretName": "tls"}}}
	for _, tc := range []struct {
		name  string
		over  values
		kinds []string
	}{
		{"as it is", nil, []string{
			"Certificate", "ClusterRole", "ClusterRoleBinding", "Deployment", "Issuer", "MutatingWebhookConfiguration",
			"PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount", "ValidatingWebhookConfiguration",
		}},
		{"everything", everything(), []string{
			"NetworkPolicy", "PodDisruptionBudget", "Deployment", "ServiceMonitor", "PrometheusRule", "ConfigMap", "Secret",
		}},
		{"a PodMonitor", podMonitored(), []string{"PodMonitor"}},
		{"excluded namespaces", values{"webhooks": values{"excludeNamespaces": []any{"kube-system", "azure"}}}, []string{"MutatingWebhookConfiguration"}},
		{"a token of its own", values{"automountServiceAccountToken": false}, []string{"Deployment"}},
		{"its own certificate", values{"certificates": values{"mode": "self"}}, []string{"Deployment"}},
		{"one namespace", values{"watchNamespace": fleetNamespace}, []string{"Role"}},
		{"Secrets of a few namespaces", values{"workloadClusters": values{"secretsIn": []any{fleetNamespace}}, "pluginRoles": values{"create": true}}, []string{"Role"}},
		{"another certificate", provided, []string{"Deployment"}},
		{"outside of the cluster", outside, []string{"ClusterRole"}},
		{"one replica", values{
			"replicaCount": 1, "drainSeconds": 0, "strategy": values{"type": "Recreate"}, "hostNetwork": false,
		}, []string{"Deployment"}},
		{"another ServiceAccount", values{"serviceAccount": values{"create": false, "name": "there"}}, []string{"ClusterRole"}},
		{"OpenShift", values{"podSecurityContext": values{"runAsUser": nil, "runAsGroup": nil, "fsGroup": nil}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects, err := render(t, tc.over)
			Expect(err).NotTo(HaveOccurred())
			kinds := map[string]bool{}
			for i := range objects {
				object := &objects[i]
				kinds[object.GetKind()] = true
				if object.GetKind() == "Deployment" {
					Expect(c.client.Create(t.Context(), podOf(t, object), client.DryRunAll)).To(Succeed())
				}
				Expect(c.client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict"))).
					To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			}
			for _, kind := range tc.kinds {
				Expect(kinds).To(HaveKey(kind))
			}
		})
	}
	t.Run("what is not restricted is refused", func(t *testing.T) {
		objects, err := render(t, values{"securityContext": values{"allowPrivilegeEscalation": true}})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		err = c.client.Create(t.Context(), podOf(t, deployment(t, objects)), client.DryRunAll)
		NewWithT(t).Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
	})
}

// podMonitored returns values for a PodMonitor with all optional fields.
func podMonitored() values {
	relabeling := []any{values{"action": "labeldrop", "regex": "pod"}}
	return values{"monitoring": values{"podMonitor": values{
		"enabled": true, "labels": values{"release": "prometheus"}, "annotations": values{"a": "b"}, "interval": "30s", "scrapeTimeout": "10s",
		"authorization": values{"credentials": values{"name": "prometheus-token", "key": "token"}},
		"tlsConfig":     values{"insecureSkipVerify": true}, "relabelings": relabeling, "metricRelabelings": relabeling,
	}}}
}

// podOf returns a Pod as the controllers of a Deployment would create it.
func podOf(t *testing.T, deployment *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	typed := &appsv1.Deployment{}
	NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(deployment.Object, typed)).To(Succeed())
	template := typed.Spec.Template
	template.Namespace, template.Name = releaseNamespace, "pod"
	template.Spec.TopologySpreadConstraints = nil // its hash is a label that the Deployment's controller sets
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

func aCABundle(t *testing.T) string {
	t.Helper()
	ca, err := controlplane.ServingCertificate(t.TempDir(), "127.0.0.1")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return base64.StdEncoding.EncodeToString(ca)
}

// Helm installs the chart, upgrades it with other values, and uninstalls it completely.
func TestInstallUpgradeUninstall(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := newCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	Expect(c.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	helm := func(args ...string) string {
		t.Helper()
		out, _, err := controlplane.Helm(t.Context(), kubeconfig, append(args, "--namespace", releaseNamespace)...)
		Expect(err).NotTo(HaveOccurred())
		return out
	}
	key := client.ObjectKey{Namespace: releaseNamespace, Name: "heirloom"}
	running, budget := &appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}

	notes := helm("install", "heirloom", chartDir(t), "--wait=false")
	Expect(notes).To(ContainSubstring("rollout status deployment/heirloom"))
	Expect(c.client.Get(t.Context(), key, running)).To(Succeed())
	Expect(running.Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
	Expect(running.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()).To(BeZero(), "a Pod goes when another is ready")
	Expect(running.Spec.Template.Spec.Containers[0].Args).To(ContainElement("--shutdown-delay=5s"))
	Expect(running.Spec.Template.Spec.TerminationGracePeriodSeconds).To(HaveValue(BeEquivalentTo(15)), "the program needs 10 more to end")
	Expect(c.client.Get(t.Context(), key, budget)).To(Succeed())

	_, stderr, err := controlplane.Helm(t.Context(), kubeconfig, "install", "heirloom", chartDir(t), "--wait=false", "--namespace", fleetNamespace)
	Expect(fmt.Sprint(stderr, err)).To(ContainSubstring("the ClusterRole heirloom belongs to the release in namespace " + releaseNamespace))

	helm("upgrade", "heirloom", chartDir(t), "--wait=false", "--set", "replicaCount=1", "--set", "watchNamespace="+fleetNamespace)
	Expect(c.client.Get(t.Context(), key, running)).To(Succeed())
	Expect(running.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
	Expect(running.Spec.Template.Spec.Containers[0].Args).To(ContainElement("--namespace=" + fleetNamespace))
	Expect(apierrors.IsNotFound(c.client.Get(t.Context(), key, budget))).To(BeTrue(), "it would keep the only Pod from being evicted")
	role := &rbacv1.Role{}
	Expect(c.client.Get(t.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: "heirloom-fleet"}, role)).To(Succeed())

	// No controllers run that could run a hook.
	helm("uninstall", "heirloom", "--no-hooks", "--wait=false", "--cascade=background")
	objects, err := render(t, everything())
	Expect(err).NotTo(HaveOccurred())
	for i := range objects {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(objects[i].GroupVersionKind())
		Expect(c.client.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/instance": "heirloom"})).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	}
}
