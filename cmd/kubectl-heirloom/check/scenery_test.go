// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	home       = "heirloom-system"
	serverName = "heirloom-webhook.heirloom-system.svc"
	// nodePool is a label that Nodes inherit.
	nodePool = "node.cluster.x-k8s.io/pool"
)

// now is when all tests run.
func now() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }

// scenery is a management cluster in which all is well: Heirloom of the chart, Cluster API, and Cluster fleet/c with MachineDeployment
// md, MachineSet ms, Machine m and its Node n. A test changes it.
type scenery struct {
	t          *testing.T
	mutating   *admissionv1.MutatingWebhookConfiguration
	validating *admissionv1.ValidatingWebhookConfiguration
	service    *corev1.Service
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	secret     *corev1.Secret
	core       *appsv1.Deployment
	cluster    *clusterv1.Cluster
	md         *clusterv1.MachineDeployment
	ms         *clusterv1.MachineSet
	machine    *clusterv1.Machine
	node       *corev1.Node
	// more are further objects of the management cluster, nodes those of the workload cluster.
	more, nodes []client.Object
	// gone names fields of the above that do not exist, such as "lease".
	gone []string

	// mute says that no webhook answers. refused is the answer to each dry run, and denied the kinds that may not be read.
	mute    bool
	refused error
	denied  []string
	// No webhook is called for what is in unanswered.
	unanswered []string
	// namespace is --heirloom-namespace, and listed the only one in which Deployments may be listed, if any.
	namespace, listed string
	workload          error
	plugin            string
	kube              string
	served            []*x509.Certificate
}

func newScenery(t *testing.T) *scenery {
	t.Helper()
	ca := newCA(t, now().AddDate(-1, 0, 0), now().AddDate(9, 0, 0))
	s := &scenery{
		t: t, plugin: "v0.3.1", kube: "v1.34.1",
		service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "heirloom-webhook"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "heirloom"}},
		},
		lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "leader-election-heirloom"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("heirloom-5d8f_0b1c"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now().Add(-time.Second)},
			},
		},
		core: deployment("capi-system", "capi-controller-manager", "registry.k8s.io/cluster-api/cluster-api-controller:v1.14.2",
			map[string]string{clusterv1.ProviderNameLabel: "cluster-api"}, "--feature-gates=MachineTaintPropagation=false"),
		deployment: deployment(home, "heirloom", "ghcr.io/heirloom-dev/heirloom:v0.3.0", map[string]string{
			"app": "heirloom", "app.kubernetes.io/part-of": "heirloom", "app.kubernetes.io/component": "manager",
		}, "--webhook-cert-dir=/certs", "--leader-elect=true"),
	}
	s.deployment.Spec.Template.Spec.Volumes = []corev1.Volume{
		{Name: "certs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "heirloom-webhook-cert"}}},
	}
	s.deployment.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "certs", MountPath: "/certs"}}
	s.signed(ca, now().AddDate(0, 0, -30), now().AddDate(0, 0, 60), serverName)
	s.register(ca.pem())
	s.fleet()
	return s
}

func deployment(namespace, name, image string, labels map[string]string, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: image, Args: args}}},
			},
		},
		Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2},
	}
}

// Reading the chart's webhooks takes longer than most tests.
var chartOnce = sync.OnceValues(expectations)

// register registers the chart's webhooks.
func (s *scenery) register(bundle []byte) {
	s.t.Helper()
	expected, err := chartOnce()
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	s.mutating = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}}
	s.validating = &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}}
	for _, e := range expected {
		w := *e.chart.DeepCopy()
		w.ClientConfig.CABundle = bundle
		if e.kind == "MutatingWebhookConfiguration" {
			s.mutating.Webhooks = append(s.mutating.Webhooks, w)
			continue
		}
		s.validating.Webhooks = append(s.validating.Webhooks, admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
}

// signed makes the Secret that cert-manager would make.
func (s *scenery) signed(ca authority, from, to time.Time, host string) {
	s.t.Helper()
	s.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "heirloom-webhook-cert", Annotations: map[string]string{issuedAnnotation: "heirloom-webhook"}},
		Data:       map[string][]byte{corev1.TLSCertKey: ca.sign(s.t, from, to, host)},
	}
}

func (s *scenery) fleet() {
	template := clusterv1.MachineTemplateSpec{
		ObjectMeta: clusterv1.ObjectMeta{
			Labels: map[string]string{nodePool: "gpu"}, Annotations: map[string]string{taint.AlwaysAnnotation: "gpu:NoSchedule"},
		},
		Spec: clusterv1.MachineSpec{ClusterName: "c"},
	}
	s.cluster = &clusterv1.Cluster{ObjectMeta: named("c", ""), Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: new(true)}}}
	s.md = &clusterv1.MachineDeployment{ObjectMeta: named("md", ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c", Template: template}}
	s.ms = &clusterv1.MachineSet{ObjectMeta: named("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c", Template: template}}
	s.machine = &clusterv1.Machine{ObjectMeta: named("m", "MachineSet/ms"), Spec: clusterv1.MachineSpec{ClusterName: "c", ProviderID: "id"}}
	s.machine.Labels, s.machine.Annotations = template.Labels, template.Annotations
	s.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", CreationTimestamp: metav1.NewTime(now().AddDate(0, -1, 0)), Labels: map[string]string{nodePool: "gpu"}},
		Spec:       corev1.NodeSpec{ProviderID: "id", Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}},
	}
}

// named returns the metadata of an object in namespace fleet; controller is "<kind>/<name>".
func named(name, controller string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name)}
	if kind, owner, ok := strings.Cut(controller, "/"); ok {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true),
		}}
	}
	return object
}

// objects are those that exist.
func (s *scenery) objects() []client.Object {
	all := slices.Clone(s.more)
	for name, object := range map[string]client.Object{
		"mutating": s.mutating, "validating": s.validating, "service": s.service, "deployment": s.deployment, "lease": s.lease, "secret": s.secret,
		"core": s.core, "cluster": s.cluster, "md": s.md, "ms": s.ms, "machine": s.machine,
	} {
		if !slices.Contains(s.gone, name) {
			all = append(all, object)
		}
	}
	return all
}

func (s *scenery) checker() *Checker {
	scheme := runtime.NewScheme()
	NewWithT(s.t).Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	management := fake.NewClientBuilder().WithScheme(scheme).WithObjects(s.objects()...).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{List: s.list, Get: s.get, Create: s.create}).Build()
	return &Checker{
		Client: management, Schemas: layouts{}, Plugin: s.plugin, Now: now, Namespace: s.namespace,
		Kubernetes: func() (*version.Info, error) {
			if s.kube == "" {
				return nil, errors.New("no answer")
			}
			return &version.Info{GitVersion: s.kube}, nil
		},
		Settings: func(ctx context.Context) (settings.Settings, error) {
			return (&settings.Flags{Namespace: s.namespace}).Read(ctx, management)
		},
		Workload: func(context.Context, types.NamespacedName) (client.Client, error) {
			nodes := s.nodes
			if !slices.Contains(s.gone, "node") {
				nodes = append(slices.Clone(nodes), s.node)
			}
			return fake.NewClientBuilder().WithScheme(scheme).WithObjects(nodes...).WithReturnManagedFields().Build(), s.workload
		},
		Served: func(context.Context, string, string) ([]*x509.Certificate, error) {
			if s.served == nil {
				return nil, errors.New("connection refused")
			}
			return s.served, nil
		},
	}
}

// check runs one of the checks.
func (s *scenery) check(name string) Result {
	s.t.Helper()
	for _, one := range s.checker().Run(s.t.Context()).Checks {
		if one.Name == name {
			return one
		}
	}
	s.t.Fatalf("there is no check %s", name)
	return Result{}
}

func (s *scenery) deny(object any) error {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
	if slices.ContainsFunc(s.denied, func(denied string) bool {
		return strings.HasSuffix(kind, "."+denied) || kind == fmt.Sprintf("%T", clusterv1.MachineList{}) && denied == "MachineList"
	}) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no right"))
	}
	return nil
}

func (s *scenery) list(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if err := s.deny(list); err != nil {
		return err
	}
	in := (&client.ListOptions{}).ApplyOptions(options).Namespace
	if _, ok := list.(*appsv1.DeploymentList); ok && s.listed != "" && in != s.listed {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", errors.New("no right"))
	}
	return c.List(ctx, list, options...)
}

func (s *scenery) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := s.deny(object); err != nil {
		return err
	}
	return c.Get(ctx, key, object, options...)
}

// create answers a dry run as an API server that calls the webhooks.
func (s *scenery) create(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
	NewWithT(s.t).Expect((&client.CreateOptions{}).ApplyOptions(options).DryRun).To(Equal([]string{metav1.DryRunAll}), "nothing is changed")
	machine, _ := object.(*unstructured.Unstructured)
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

// layouts are those of kinds that have all fields.
type layouts struct{}

func (layouts) ControlPlane(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
}

func (layouts) Machine(context.Context, schema.GroupVersionKind) inherit.Layout {
	return inherit.MachineLayout
}
