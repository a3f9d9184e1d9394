// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// New pools must declare the chart's requiredKeys and keep them; an older object without them can still be updated.
func TestRequiredKeys(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	name := s.own("required")
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	s.create(cluster)
	old := stage.MachineDeployment(cluster, "old", stage.Declared{})
	s.create(old)
	s.requireKeys(name, nil)

	declares := stage.Declared{Labels: map[string]string{"cost-center": "7"}}
	const refusal = "declare label cost-center in spec.template"
	s.Eventually(func() error { // API servers read policies every second
		return s.Client.Create(s.ctx, stage.MachineDeployment(cluster, "without", stage.Declared{}), client.DryRunAll)
	}).WithTimeout(patience).WithPolling(polling).Should(And(MatchError(ContainSubstring(refusal)), MatchError(apierrors.IsInvalid, "IsInvalid")))
	with := stage.MachineDeployment(cluster, "with", declares)
	s.create(with)
	withdrawn := with.DeepCopy()
	delete(withdrawn.Spec.Template.Labels, "cost-center")
	s.Expect(s.Client.Update(s.ctx, withdrawn, client.DryRunAll)).To(MatchError(ContainSubstring(refusal)))
	s.update(old, func() { old.Spec.Template.Labels["other"] = "1" })
	pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "pool"}}
	pool.Spec = clusterv1.MachinePoolSpec{ClusterName: name, Template: with.Spec.Template}
	s.Expect(s.Client.Create(s.ctx, pool)).To(MatchError(ContainSubstring("declare annotation example.com/owner")))
	pool.Spec.Template.Annotations = map[string]string{"example.com/owner": "ml"}
	s.create(pool)

	topology := `{"spec": {"topology": {"classRef": {"name": "none"}, "version": "v1.36.0", "workers": {"machineDeployments": [
		{"class": "a", "name": "a", "metadata": {"labels": {"cost-center": "7"}}}, {"class": "a", "name": "b"}]}}}}`
	warnings := s.byKubectl("patch", "--namespace", name, "cluster", name, "--type=merge", "--patch", topology)
	s.Expect(warnings).To(And(ContainSubstring("declare label cost-center in MachineDeployment b"), Not(ContainSubstring("MachineDeployment a"))))
}

// Where Heirloom only observes a Cluster, a required key is only asked for; in a Cluster that is not enrolled, it is not.
func TestRequiredKeysInTheModeOfTheCluster(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	const problem = "declare label tier in MachineDeployment a"
	for kind, over := range map[string]map[string]any{"enforced": {}, "observed": {"mode": "observe"}, "enrolled": {"enrollment": "labeled"}} {
		name := s.own("mode-" + kind)
		s.ensureNamespace(name)
		over["requiredKeys"] = []any{map[string]any{"label": "tier", "kind": "Cluster"}, map[string]any{"label": "tier", "kind": "MachineDeployment"}}
		over["fullnameOverride"] = name
		s.requireKeys(name, over)
		creates := func(labels map[string]string) (answer string, err error) {
			cluster := stage.Cluster(name, "c")
			cluster.Labels = labels
			cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "none"}, Version: "v1.36.0"}
			cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Class: "a", Name: "a"}}
			return s.tries(cluster)
		}
		s.Eventually(func() string { // API servers read policies every second
			answer, err := creates(map[string]string{inherit.ModeLabel: "enforce"})
			s.Expect(err == nil || kind != "observed").To(BeTrue(), "an installation that only observes refuses nothing")
			return answer
		}).WithTimeout(patience).WithPolling(polling).Should(ContainSubstring(problem), kind)
		answer, err := creates(map[string]string{inherit.ModeLabel: "observe"})
		s.Expect(err).NotTo(HaveOccurred(), kind)
		s.Expect(answer).To(ContainSubstring(problem), kind)

		answer, err = creates(nil)
		_, ofPool := s.tries(stage.MachineDeployment(stage.Cluster(name, "c"), "md", stage.Declared{}))
		s.Expect([]bool{err != nil, strings.Contains(answer, problem), ofPool != nil}).To(Equal(map[string][]bool{
			"enforced": {true, true, true}, "observed": {false, true, false}, "enrolled": {false, false, true}, // CEL does not see the Cluster of a pool
		}[kind]), "%s: %s", kind, answer)
	}
}

// tries creates an object in a dry run, and returns the warnings or the refusal.
func (s *scene) tries(object client.Object) (answer string, err error) {
	s.t.Helper()
	gvk, err := apiutil.GVKForObject(object, s.Client.Scheme())
	s.Expect(err).NotTo(HaveOccurred())
	object.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err := yaml.Marshal(object)
	s.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(s.t.TempDir(), "object.yaml")
	s.Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
	_, answer, err = controlplane.Kubectl(s.ctx, s.adminKubeconfig(), "create", "--dry-run=server", "--filename", file)
	return answer, err
}

// requireKeys installs the chart's policies, with the values of the example by default, for one namespace.
func (s *scene) requireKeys(namespace string, values map[string]any) {
	s.t.Helper()
	if values == nil {
		s.Expect(yaml.Unmarshal([]byte(s.read(examplesDir("required-keys", "values.yaml"))), &values)).To(Succeed())
	}
	values["watchNamespace"] = namespace
	for _, object := range render(s.t, values) {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			s.create(&object)
		}
	}
}
