// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

const (
	home       = "heirloom-system"
	serverName = "heirloom-webhook.heirloom-system.svc"
	// nodePool is a label that Nodes inherit.
	nodePool = "node.cluster.x-k8s.io/pool"
)

// now is the time of all tests.
func now() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }

// scenery is a healthy management cluster: Heirloom of the chart, Cluster API, and Cluster fleet/c with MachineDeployment md, MachineSet
// ms, Machine m and its Node n, as in testdata/scenery.yaml. A test changes it.
type scenery struct {
	t                *testing.T
	deployment, core appsv1.Deployment
	lease            coordinationv1.Lease
	cluster          clusterv1.Cluster
	md               clusterv1.MachineDeployment
	ms               clusterv1.MachineSet
	machine          clusterv1.Machine
	node             corev1.Node
	secret           corev1.Secret
	mutating         admissionv1.MutatingWebhookConfiguration
	validating       admissionv1.ValidatingWebhookConfiguration
	// more holds further objects of the management cluster, nodes the Nodes of the workload cluster, and gone the names of fields whose
	// objects do not exist.
	more, nodes []client.Object
	gone        []string
	// With mute, no webhook answers, in the namespaces of unanswered or in all. refused is the answer to each dry run, workload the error of
	// connections to workload clusters, and denied holds the kinds that may not be read.
	mute               bool
	refused, workload  error
	denied, unanswered []string
	// plugin and kube are versions.
	plugin, kube string
}

func newScenery(t *testing.T) *scenery {
	t.Helper()
	Expect := NewWithT(t).Expect
	s := &scenery{t: t, plugin: "v0.3.1", kube: "v1.34.1"}
	raw, err := os.ReadFile(filepath.Join("testdata", "scenery.yaml"))
	Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(raw), "---\n")
	for i, into := range []any{&s.deployment, &s.core, &s.lease, &s.cluster, &s.md, &s.ms, &s.machine, &s.node} {
		Expect(yaml.UnmarshalStrict([]byte(documents[i]), into)).To(Succeed())
	}
	s.signed("ca", serverName, -30, 60)
	return s
}

// register registers the webhooks as the chart does.
func (s *scenery) register(bundle []byte) {
	in := metav1.ObjectMeta{Name: "heirloom", Annotations: map[string]string{
		"meta.helm.sh/release-name": "heirloom", "meta.helm.sh/release-namespace": home,
	}}
	s.mutating = admissionv1.MutatingWebhookConfiguration{ObjectMeta: in}
	s.validating = admissionv1.ValidatingWebhookConfiguration{ObjectMeta: in}
	at := admissionv1.WebhookClientConfig{CABundle: bundle, Service: &admissionv1.ServiceReference{Namespace: home, Name: "heirloom-webhook"}}
	conditions := []admissionv1.MatchCondition{{Name: "changed", Expression: "true"}}
	for _, name := range Webhooks {
		if strings.HasSuffix(name, refuser) {
			s.validating.Webhooks = append(s.validating.Webhooks, admissionv1.ValidatingWebhook{
				Name: name, ClientConfig: at, FailurePolicy: new(admissionv1.Fail), TimeoutSeconds: new(int32(2)), MatchConditions: conditions,
			})
			continue
		}
		s.mutating.Webhooks = append(s.mutating.Webhooks, admissionv1.MutatingWebhook{
			Name: name, ClientConfig: at, FailurePolicy: new(admissionv1.Ignore), TimeoutSeconds: new(int32(2)), MatchConditions: conditions,
			ReinvocationPolicy: new(admissionv1.IfNeededReinvocationPolicy),
		})
	}
}

// signed makes the Secret with the serving certificate, and registers the webhooks with its CA.
func (s *scenery) signed(ca, host string, from, to int) {
	serving, authority := made(s.t, ca, host, from, to)
	s.secret = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "heirloom-webhook-cert"}}
	s.secret.Data = map[string][]byte{corev1.TLSCertKey: serving}
	s.register(authority)
}

func (s *scenery) checker() *Checker {
	objects, nodes := slices.Clone(s.more), slices.Clone(s.nodes)
	for name, object := range map[string]client.Object{
		"mutating": &s.mutating, "validating": &s.validating, "deployment": &s.deployment, "lease": &s.lease, "secret": &s.secret,
		"core": &s.core, "cluster": &s.cluster, "md": &s.md, "ms": &s.ms, "machine": &s.machine,
	} {
		if !slices.Contains(s.gone, name) {
			objects = append(objects, object)
		}
	}
	if !slices.Contains(s.gone, "node") {
		nodes = append(nodes, &s.node)
	}
	answers := fleet.Asks(s.denies)
	answers.Create = s.create
	management := fleet.Server(objects...).WithInterceptorFuncs(answers).Build()
	read, err := (&settings.Flags{}).Read(s.t.Context(), management)
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	w := fleet.World(s.t, management)
	w.Settings, w.Now = read, now()
	w.Nodes = func(context.Context, types.NamespacedName) (client.Reader, error) {
		return fleet.Server(nodes...).Build(), s.workload
	}
	return &Checker{
		World: w, Client: management, Plugin: s.plugin,
		Kubernetes: func() (*version.Info, error) { return &version.Info{GitVersion: s.kube}, nil },
	}
}

// check runs a check by name.
func (s *scenery) check(name string) Result {
	s.t.Helper()
	for _, one := range s.checker().Run(s.t.Context()).Checks {
		if one.Name == name {
			return one
		}
	}
	return Result{}
}

func (s *scenery) denies(request string) error {
	if kind := strings.Fields(request)[1]; slices.Contains(s.denied, kind) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no right"))
	}
	return nil
}

// create answers a dry run as an API server that calls the webhooks.
func (s *scenery) create(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
	NewWithT(s.t).Expect((&client.CreateOptions{}).ApplyOptions(options).DryRun).To(Equal([]string{metav1.DryRunAll}), "the create is a dry run")
	machine := object.(*clusterv1.Machine)
	switch {
	case s.refused != nil:
		return s.refused
	case s.mute, slices.Contains(s.unanswered, machine.GetNamespace()):
		return nil
	case machine.GetAnnotations()[taint.AlwaysAnnotation] != "":
		return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "", errors.New(`admission webhook "taints.heirloom.dev" denied the request`))
	}
	machine.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: managedfields.Manager, Operation: metav1.ManagedFieldsOperationApply}})
	return nil
}
