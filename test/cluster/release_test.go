// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// release is Heirloom in the cluster, as a Helm release.
type release struct {
	*gomega.WithT
	t      *testing.T
	ctx    context.Context
	values []string // arguments of helm
}

// newRelease installs the chart, with further arguments for helm, in a namespace that admits only "restricted" Pods, and waits until it is
// ready. The release is uninstalled at the end of the test, unless the test has done so.
func newRelease(t *testing.T, values ...string) *release {
	t.Helper()
	if shared.Cluster == nil {
		t.Skip(cluster.Missing())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	r := &release{WithT: gomega.NewWithT(t), t: t, ctx: ctx}
	r.Expect(shared.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: stage.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})).To(gomega.Succeed())
	registry, image, _ := strings.Cut(shared.Image, "/")
	repository, tag, _ := strings.Cut(image, ":")
	r.values = append([]string{
		"--set", "image.registry=" + registry, "--set", "image.repository=" + repository,
		"--set-string", "image.tag=" + tag, // the short hash of a commit may be a number
		"--set", "networkPolicy.enabled=true", "--set", "certificates.mode=self",
		// On a busy machine an answer may be slow, and no write may pass without an answer.
		"--set", "webhooks.timeoutSeconds=10",
	}, values...)
	t.Cleanup(r.remove)
	r.step("helm install", func() { r.helm(append([]string{"install", "heirloom", r.chart(), "--wait"}, r.values...)...) })
	return r
}

func (r *release) root() string {
	r.t.Helper()
	root, err := controlplane.RepositoryRoot(context.Background())
	r.Expect(err).NotTo(gomega.HaveOccurred())
	return root
}

func (r *release) chart() string { return filepath.Join(r.root(), "deploy", "chart", "heirloom") }

func (r *release) helm(args ...string) {
	r.t.Helper()
	args = append(args, "--namespace", stage.Namespace, "--timeout", "90s")
	_, _, err := controlplane.Helm(r.ctx, shared.Kubeconfig, args...)
	r.Expect(err).NotTo(gomega.HaveOccurred())
}

// step runs a step and logs its duration.
func (r *release) step(what string, do func()) {
	r.t.Helper()
	started := time.Now()
	do()
	r.t.Logf("%s: %.1f s", what, time.Since(started).Seconds())
}

// remove uninstalls the release, if it is still installed, and waits until its namespace is gone.
func (r *release) remove() {
	if r.t.Failed() {
		r.show()
	}
	// The context of the test has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	_, _, err := controlplane.Helm(ctx, shared.Kubeconfig,
		"uninstall", "heirloom", "--namespace", stage.Namespace, "--ignore-not-found", "--wait")
	r.Expect(err).NotTo(gomega.HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage.Namespace}}
	r.Expect(shared.Delete(ctx, namespace)).To(gomega.Succeed())
	r.Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }).
		WithTimeout(patience).WithPolling(polling).ShouldNot(gomega.Succeed())
}

// pods returns the Pods of the release, including Pods that are being deleted.
func (r *release) pods() []corev1.Pod {
	r.t.Helper()
	var list corev1.PodList
	r.Expect(shared.List(r.ctx, &list, client.InNamespace(stage.Namespace),
		client.MatchingLabels{"app.kubernetes.io/component": "manager"})).To(gomega.Succeed())
	return list.Items
}

// show prints the events in the namespace of the release, and the logs of its Pods.
func (r *release) show() {
	for _, args := range [][]string{
		{"get", "pods,replicasets,endpointslices,events", "--output=wide"},
		{"logs", "--selector=app.kubernetes.io/component=manager", "--all-containers", "--prefix", "--tail=40"},
	} {
		stdout, stderr, _ := controlplane.Kubectl(context.Background(), shared.Kubeconfig,
			append([]string{"--namespace", stage.Namespace}, args...)...)
		r.t.Logf("kubectl %s:\n%s%s", strings.Join(args, " "), stdout, stderr)
	}
}
