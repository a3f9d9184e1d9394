// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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
	s.requireKeys(name)

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

// requireKeys installs the chart's policies with the values of the example, for one namespace.
func (s *scene) requireKeys(namespace string) {
	s.t.Helper()
	values := map[string]any{}
	s.Expect(yaml.Unmarshal([]byte(s.read(examplesDir("required-keys", "values.yaml"))), &values)).To(Succeed())
	values["watchNamespace"] = namespace
	for _, object := range render(s.t, values) {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			s.create(&object)
		}
	}
}
