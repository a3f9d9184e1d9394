// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// testScale adds many Machines and Nodes and changes the one template above them. They have a MachineDeployment to themselves, so
// that a later change of the member's own reaches its few Nodes without waiting for theirs.
func (f *fleet) testScale(count int) {
	const ring = "node.cluster.x-k8s.io/ring"
	defer controlplane.Waited("many Nodes to follow", time.Now())
	f.admit(f.blue, "none")
	many := *f.blue
	f.deploy(&many, "many")
	var creates errgroup.Group
	creates.SetLimit(16)
	for i := range count {
		creates.Go(func() error {
			name := fmt.Sprintf("many-%03d", i)
			if err := f.Client.Create(f.ctx, stage.Machine(many.ms, name)); err != nil {
				return err
			}
			return f.blue.Client.Create(f.ctx, stage.Node(name))
		})
	}
	f.Expect(creates.Wait()).To(Succeed())
	f.declare(f.blue, ring, "outer")
	f.declare(&many, ring, "outer")
	f.Eventually(func(g Gomega) {
		list := &corev1.NodeList{}
		g.Expect(f.blue.Client.List(f.ctx, list)).To(Succeed())
		var missing []string
		for i := range list.Items {
			if list.Items[i].Labels[ring] != "outer" {
				missing = append(missing, list.Items[i].Name)
			}
		}
		g.Expect(len(list.Items)).To(BeNumerically(">=", count))
		g.Expect(missing).To(BeEmpty())
	}).WithTimeout(5 * time.Minute).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// testQuiet expects that nobody writes or reads what Heirloom handles, once everything has settled, as the API servers
// themselves count it.
func (f *fleet) testQuiet() {
	servers := map[string]*rest.Config{"management": f.AdminConfig(), "red": f.red.AdminConfig(), "blue": f.blue.AdminConfig()}
	count := func() map[string]float64 {
		counted := map[string]float64{}
		for name, config := range servers {
			for what, n := range f.requests(config) {
				counted[name+" "+what] = n
			}
		}
		return counted
	}
	begun := time.Now()
	defer controlplane.Waited("a quiet fleet", begun)
	before, since := count(), begun
	f.Eventually(func() time.Duration {
		now := count()
		if changed := difference(before, now); len(changed) > 0 {
			f.t.Logf("not quiet yet, after %s: %v", time.Since(begun).Round(time.Second), changed)
			before, since = now, time.Now()
		}
		return time.Since(since)
	}).WithTimeout(3*time.Minute).WithPolling(2*time.Second).Should(BeNumerically(">=", 20*time.Second), "it settles and stays quiet")
}

// requests returns what the API server has counted of requests about what Heirloom handles: everything but what kubelets
// do themselves, which is to report the status of their Nodes and to read them.
func (f *fleet) requests(config *rest.Config) map[string]float64 {
	clientset, err := kubernetes.NewForConfig(config)
	f.Expect(err).NotTo(HaveOccurred())
	raw, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(f.ctx)
	f.Expect(err).NotTo(HaveOccurred())
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	f.Expect(err).NotTo(HaveOccurred())
	counted := map[string]float64{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		read := labels["verb"] == "GET" || labels["verb"] == "LIST" || labels["verb"] == "WATCH"
		switch {
		case strings.HasSuffix(labels["group"], "cluster.x-k8s.io") && labels["verb"] != "WATCH":
		case labels["resource"] == "nodes" && labels["subresource"] == "" && !read:
		default:
			continue
		}
		counted[labels["verb"]+" "+labels["resource"]+"/"+labels["subresource"]] += metric.GetCounter().GetValue()
	}
	return counted
}

func difference(before, after map[string]float64) map[string]float64 {
	changed := map[string]float64{}
	for what, n := range after {
		if n != before[what] {
			changed[what] = n - before[what]
		}
	}
	return changed
}

func fromUnstructured(u *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}
