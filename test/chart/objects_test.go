// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/fleet"
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
	for _, name := range []string{releaseNamespace, fleetNamespace, "edge", "red", "blue"} {
		Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}})).To(Succeed())
	}
	return &cluster{cp.ControlPlane, c}
}

// The API server accepts all objects of every installation, including every field. Pods meet the Pod Security Standard "restricted", except
// for Pods in the network of Nodes.
func TestObjectsAreValid(t *testing.T) {
	c := newCluster(t)
	NewWithT(t).Expect(c.client.Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})).To(Succeed())
	for name, over := range installations(t) {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects := renderWithHook(t, over)
			for i := range objects {
				Expect(c.client.Create(t.Context(), objects[i].DeepCopy(), client.DryRunAll, client.FieldValidation("Strict"))).
					To(Succeed(), "%s %s", objects[i].GetKind(), objects[i].GetName())
			}
			if program := deployment(t, objects); program != nil {
				pod := podOf(program)
				err := c.client.Create(t.Context(), pod, client.DryRunAll)
				Expect(apierrors.IsForbidden(err)).To(Equal(pod.Spec.HostNetwork), "got %v", err)
				Expect(err == nil).To(Equal(!pod.Spec.HostNetwork), "got %v", err)
			}
		})
	}
}

// podOf returns a Pod as the controllers of a Deployment would create it.
func podOf(deployment *appsv1.Deployment) *corev1.Pod {
	template := deployment.Spec.Template
	template.Namespace, template.Name = releaseNamespace, "pod"
	template.Spec.TopologySpreadConstraints = nil // its hash is a label that the Deployment's controller sets
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

// Every object of the chart has the labels of the chart and the common metadata. An object's own value of a common annotation wins; no
// object's label replaces the chart's.
func TestEveryObjectHasTheCommonMetadata(t *testing.T) {
	over := installations(t)["everything"]
	over["extraObjects"], over["createNamespace"], over["uninstall"] = []any{}, true, values{"hook": values{"enabled": true}}
	over["commonLabels"], over["commonAnnotations"] = values{"common": "l"}, values{"common": "a"}
	over["deploymentAnnotations"] = values{"common": "own"}
	objects := renderWithHook(t, over)
	NewWithT(t).Expect(deployment(t, objects).Spec.Template.Annotations).NotTo(HaveKey("common"), "it would replace Pods")
	for _, object := range objects {
		name, annotation := object.GetKind()+" "+object.GetName(), "a"
		if object.GetKind() == "Deployment" {
			annotation = "own"
		}
		NewWithT(t).Expect(object.GetLabels()).To(HaveKeyWithValue("common", "l"), name)
		NewWithT(t).Expect(object.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/name", "heirloom"), name)
		NewWithT(t).Expect(object.GetAnnotations()).To(HaveKeyWithValue("common", annotation), name)
	}
}

// Tests and the demo render the chart with Helm's packages. The helm command of operators has the same result; Helm 3 only changes the
// order of the objects.
func TestRenderingEqualsHelm(t *testing.T) {
	type command = func(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error)
	for helmName, helm := range map[string]command{"Helm 4": controlplane.Helm, "Helm 3": controlplane.Helm3} {
		for _, name := range []string{"everything", "self-contained"} {
			t.Run(name+" by "+helmName, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				// Without --kube-version, Helm 3 assumes an old version of Kubernetes.
				args := []string{"--values", filepath.Join("testdata", "installations", name+".yaml"), "--kube-version=1.36.0"}
				out, _, err := helm(t.Context(), os.DevNull,
					append([]string{"template", "heirloom", chartDir(t), "--namespace", releaseNamespace, "--no-hooks"}, args...)...)
				Expect(err).NotTo(HaveOccurred())
				ofHelm, err := controlplane.DecodeObjects(out)
				Expect(err).NotTo(HaveOccurred())
				ours, err := render(t, installations(t)[name])
				Expect(err).NotTo(HaveOccurred())
				Expect(cmp.Diff(ofHelm, ours, cmpopts.SortSlices(before))).To(BeEmpty())
				_, _, err = helm(t.Context(), os.DevNull, append([]string{"lint", chartDir(t), "--strict"}, args...)...)
				Expect(err).NotTo(HaveOccurred())
			})
		}
	}
}

func before(a, b unstructured.Unstructured) bool {
	return a.GetKind()+a.GetNamespace()+"/"+a.GetName() < b.GetKind()+b.GetNamespace()+"/"+b.GetName()
}

// The notes of an installation that does not write everywhere begin with its mode and the next step. They name deprecated values.
func TestNotesBeginWithTheMode(t *testing.T) {
	for name, args := range map[string][]string{
		"observe": {"--set=mode=observe"},
		"labeled": {"--set=enrollment=labeled"},
		"both":    {"--set=mode=observe,enrollment=labeled"},
		"enforce": nil,
		"former":  {"--set=uninstall.release=true"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := controlplane.Helm(t.Context(), os.DevNull, append([]string{"install", "heirloom", chartDir(t), "--dry-run=client", "--namespace", releaseNamespace}, args...)...)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			_, notes, _ := strings.Cut(out, "\nNOTES:\n")
			fleet.Golden(t, "notes/"+name, regexp.MustCompile(`Heirloom v\S+ is`).ReplaceAllString(notes, "Heirloom APPVERSION is"))
		})
	}
}

// Helm refuses a second release of one name, and uninstalls a release completely.
func TestOneReleaseOfAName(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := newCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	Expect(c.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	helm := func(namespace string, args ...string) error {
		_, stderr, err := controlplane.Helm(t.Context(), kubeconfig, append(args, "--wait=false", "--namespace", namespace)...)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr)
		}
		return err
	}
	Expect(helm(releaseNamespace, "install", "heirloom", chartDir(t))).To(Succeed())
	Expect(helm(fleetNamespace, "install", "heirloom", chartDir(t))).To(MatchError(
		ContainSubstring("the ClusterRole heirloom belongs to the release in namespace " + releaseNamespace)))
	// No controllers run that could run a hook.
	Expect(helm(releaseNamespace, "uninstall", "heirloom", "--no-hooks", "--cascade=background")).To(Succeed())
	objects, err := render(t, nil)
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(&object), object.DeepCopy())
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", object.GetKind(), err)
	}
}
