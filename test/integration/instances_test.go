// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Two instances share a management cluster. Each handles the Clusters with its label, and leaves the others alone, also after the Clusters
// have changed places: then it is connected only to its new Cluster, whose API server has its policy alone, and nobody undoes anything. At
// last, a third instance takes Cluster red over by its namespace. The same for webhooks by URL: TestChangedRegistrationIsRestored
// (pkg/workload/webhook).
func TestSeveralInstances(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true, Args: []string{"--watch-filter=a", "--sync-period=1s"}})
	a := &instance{s, "heirloom", s.MetricsURL, tailOf(s.HeirloomLog())}
	b, endB := s.instance("b", "--watch-filter=b")
	red, blue := s.abroad("red"), s.abroad("blue")
	s.give(red, "a")
	s.give(blue, "b")
	for _, of := range []abroad{red, blue} {
		node := stage.Node(of.m.Name)
		s.Expect(of.Client.Create(s.ctx, node)).To(Succeed())
		s.expectInherited(of, node)
	}
	a.has(red)
	b.has(blue)

	s.give(red, "b")
	s.give(blue, "a")
	for _, of := range []abroad{red, blue} {
		s.declaresSeason(of, "winter")
	}
	b.has(red)
	a.has(blue)
	s.Eventually(func(g Gomega) {
		before := s.versions(red, blue)
		a.looksAgain()
		b.looksAgain()
		g.Expect(s.versions(red, blue)).To(Equal(before), "nobody writes any more")
	}).WithTimeout(patience).Should(Succeed())

	s.Expect(endB()).To(Succeed())
	c, _ := s.instance("c", "--namespace=red")
	s.declaresSeason(red, "spring")
	c.has(red)
	s.Expect(a.wrote()).To(BeEmpty())
}

// instance is one of several programs.
type instance struct {
	*scene
	// name is the name of its webhook configurations.
	name, metricsURL string
	log              tail
}

// instance starts a further program.
func (s *scene) instance(name string, args ...string) (of *instance, end func() error) {
	s.t.Helper()
	program, err := s.StartReplica(s.ctx, name, append(args, taintGate+"enabled", "--sync-period=1s", "--webhook-configuration="+name)...)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(func() {
		if err := program.Stop(); err != nil {
			s.t.Errorf("stopping instance %s: %v", name, err)
		}
		expectNoRace(s.t, tail{path: program.HeirloomLog()})
	})
	return &instance{s, name, program.MetricsURL, tailOf(program.HeirloomLog())}, program.Stop
}

// give gives a Cluster with its objects to the instance with this filter, as docs/several-instances.md says.
func (s *scene) give(of abroad, filter string) {
	s.t.Helper()
	pause := func(paused bool) {
		s.get(of.cluster)
		s.update(of.cluster, func() { of.cluster.Spec.Paused = ptr.To(paused) })
	}
	pause(true)
	for _, object := range []client.Object{of.cluster, of.md, of.ms, of.m} {
		s.get(object)
		s.update(object, func() { object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{clusterv1.WatchLabel: filter})) })
	}
	pause(false)
}

// declaresSeason declares a label, and waits until the Node has it.
func (s *scene) declaresSeason(of abroad, season string) {
	s.t.Helper()
	const key = "node.cluster.x-k8s.io/season"
	s.get(of.md)
	s.update(of.md, func() { of.md.Spec.Template.Labels[key] = season })
	node := stage.Node(of.m.Name)
	s.eventuallyNode(of, node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue(key, season)) })
}

// has waits until the instance counts this Cluster and no other, and its policy is the Cluster's. Since the last call, it has written
// objects of this Cluster and of no other.
func (i *instance) has(of abroad) {
	i.t.Helper()
	name := client.ObjectKeyFromObject(of.cluster).String()
	cluster := fmt.Sprintf(`cluster_name="%s",cluster_namespace="%s"`, of.cluster.Name, of.cluster.Namespace)
	i.Eventually(func(g Gomega) {
		samples := i.samplesAt(i.metricsURL)
		g.Expect(samples).To(And(HaveKeyWithValue("capi_cluster_cache_connection_up{"+cluster+"}", 1.0),
			HaveKeyWithValue(`heirloom_workload_clusters{state="connected"}`, 1.0), HaveKeyWithValue(`heirloom_workload_clusters{state="disconnected"}`, 0.0)))
		for sample := range samples {
			g.Expect(sample).To(Or(Not(ContainSubstring("cluster_name=")), ContainSubstring(cluster)))
		}
		for _, object := range i.policyOf(of) {
			g.Expect(object.GetAnnotations()).To(HaveKeyWithValue(policy.OwnerAnnotation, HavePrefix(i.name+"/"+name+"/")), "%T", object)
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	i.Expect(i.wrote()).To(And(Not(BeEmpty()), HaveEach(name)))
}

// wrote returns the Clusters of the objects that the instance has written since the last call.
func (i *instance) wrote() (clusters []string) {
	i.t.Helper()
	log := i.log.read()
	i.log.from += int64(len(log))
	for _, write := range regexp.MustCompile(`inherited entries.* Cluster="([a-z/]+)"`).FindAllSubmatch(log, -1) {
		clusters = append(clusters, string(write[1]))
	}
	return clusters
}

// policyOf returns the objects that admit the Nodes of a workload cluster, if it serves policies.
func (s *scene) policyOf(of abroad) []client.Object {
	s.t.Helper()
	if !of.ServesAdmissionPolicies() {
		return nil
	}
	objects := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: policy.Name}},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}},
	}
	for _, object := range objects {
		s.Expect(client.IgnoreNotFound(of.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object))).To(Succeed())
	}
	return objects
}

// versions returns the resource versions of the objects of these Clusters, with their Nodes and registrations.
func (s *scene) versions(clusters ...abroad) (versions []string) {
	s.t.Helper()
	for _, of := range clusters {
		node := stage.Node(of.m.Name)
		s.Expect(of.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		objects := append(s.policyOf(of), node)
		for _, object := range []client.Object{of.cluster, of.md, of.ms, of.m} {
			s.get(object)
			objects = append(objects, object)
		}
		for _, object := range objects {
			versions = append(versions, fmt.Sprintf("%T %s: %s", object, object.GetName(), object.GetResourceVersion()))
		}
	}
	return versions
}

// looksAgain waits until the instance has looked again at Machines, Nodes and workload clusters: the second look begins later than the call.
func (i *instance) looksAgain() {
	i.t.Helper()
	looks := func(controller string) (sum float64) {
		for sample, value := range i.samplesAt(i.metricsURL) {
			if strings.HasPrefix(sample, `controller_runtime_reconcile_total{controller="`+controller+`"`) {
				sum += value
			}
		}
		return sum
	}
	for _, controller := range []string{"machine", "node", "workload"} {
		before := looks(controller)
		i.Eventually(looks).WithArguments(controller).WithTimeout(patience).WithPolling(polling).Should(BeNumerically(">=", before+2))
	}
}
