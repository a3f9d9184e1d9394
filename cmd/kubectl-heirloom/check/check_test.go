// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	paths "k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/fleet"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

func TestReport(t *testing.T) {
	for name, change := range map[string]func(*scenery){
		"healthy": func(s *scenery) { // another webhook, after which API servers call ours again
			all := admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}}}
			later := admissionv1.MutatingWebhook{Name: "w.example.com", Rules: []admissionv1.RuleWithOperations{all}}
			s.more = []client.Object{&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kyverno"}, Webhooks: []admissionv1.MutatingWebhook{later}}}
		},
		"broken": func(s *scenery) {
			s.deployment.Status.AvailableReplicas = 1
			s.mutating.Webhooks[0].MatchConditions, s.mutating.Webhooks[0].FailurePolicy = nil, new(admissionv1.Fail)
			s.denied = []string{"Secret"}
			s.mute = true
			s.node.Spec.Taints, s.node.Labels[nodePool] = nil, "cpu"
			s.node.ManagedFields = owned("cloud-labeller")
			s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-7", UID: "worker-7"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newScenery(t)
			change(s)
			var out strings.Builder
			report := s.checker().Run(t.Context())
			Expect(report.Write(&out, false)).To(Succeed())
			_, err := runtime.DefaultUnstructuredConverter.ToUnstructured(report) // for --output=json
			Expect(err).NotTo(HaveOccurred())
			fleet.Golden(t, name, out.String())
		})
	}
}

// finding is a change of the scenery, and the expected result of a check: its status, and parts of its lines.
type finding struct {
	check, name string
	change      func(*scenery)
	status      Status
	want        []string
}

func expect(t *testing.T, findings []finding) {
	t.Helper()
	for _, f := range findings {
		t.Run(f.check+": "+f.name, func(t *testing.T) {
			s := newScenery(t)
			f.change(s)
			got := s.check(f.check)
			NewWithT(t).Expect(got.Status).To(Equal(f.status), "%+v", got)
			for _, want := range f.want {
				NewWithT(t).Expect(strings.Join(append(got.Details, got.Message, got.Next), "\n")).To(ContainSubstring(want))
			}
		})
	}
}

// flags adds flags to the server; core adds flags to Cluster API's core manager.
func flags(flags ...string) func(*scenery) {
	return func(s *scenery) {
		manager := &s.deployment.Spec.Template.Spec.Containers[0]
		manager.Args = append(manager.Args, flags...)
	}
}

func core(flags ...string) func(*scenery) {
	return func(s *scenery) { s.core.Spec.Template.Spec.Containers[0].Args = flags }
}

func both(changes ...func(*scenery)) func(*scenery) {
	return func(s *scenery) {
		for _, change := range changes {
			change(s)
		}
	}
}

// noNodes removes the webhook of Nodes.
func noNodes(s *scenery) {
	s.mutating.Webhooks = slices.DeleteFunc(s.mutating.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == "nodes.heirloom.dev" })
}

func gone(what ...string) func(*scenery) {
	return func(s *scenery) { s.gone = append(s.gone, what...) }
}
func denied(what ...string) func(*scenery) { return func(s *scenery) { s.denied = what } }

// mutating changes the webhook of Machines.
func mutating(change func(*admissionv1.MutatingWebhook)) func(*scenery) {
	return func(s *scenery) {
		for i := range s.mutating.Webhooks {
			if s.mutating.Webhooks[i].Name == giver {
				change(&s.mutating.Webhooks[i])
			}
		}
	}
}

// byURL registers the webhooks with a URL.
func byURL(s *scenery) {
	at := admissionv1.WebhookClientConfig{URL: new("https://heirloom.example.com/base"), CABundle: s.mutating.Webhooks[0].ClientConfig.CABundle}
	for i := range s.mutating.Webhooks {
		s.mutating.Webhooks[i].ClientConfig = at
	}
	for i := range s.validating.Webhooks {
		s.validating.Webhooks[i].ClientConfig = at
	}
}

func TestInstallation(t *testing.T) {
	const on, labels = "--feature-gates=MachineTaintPropagation=true", "--additional-sync-machine-labels=^team$"
	expect(t, []finding{
		{"installed", "not at all", gone("mutating", "validating", "deployment"), Failed, []string{"Heirloom is not installed", "docs/getting-started.md#install"}},
		{"installed", "webhooks without a program", gone("deployment"), Failed, []string{"There is no Deployment of Heirloom, but its webhooks", "helm upgrade", "--heirloom-namespace"}},
		{"installed", "elsewhere", both(gone("deployment"), byURL), Unknown, []string{"call Heirloom by URL"}},
		{"installed", "scaled down", func(s *scenery) { s.deployment.Spec.Replicas, s.deployment.Status.AvailableReplicas = new(int32(0)), 0 }, Failed, []string{"0 of 0 replicas", "describe deployments,pods"}},
		{"installed", "no replica", func(s *scenery) { s.deployment.Status.AvailableReplicas = 0 }, Failed, []string{"0 of 2 replicas", "describe deployments,pods"}},
		{"installed", "an update", func(s *scenery) { s.deployment.Status.UpdatedReplicas = 1 }, Warning, []string{"1 up to date"}},
		{"installed", "nobody leads", func(s *scenery) { s.lease.Spec.HolderIdentity = new("") }, Failed, []string{"No replica leads: Lease heirloom-system/leader-election-heirloom has no holder or has expired", "HeirloomNotLeading"}},
		{"installed", "the leader is gone", func(s *scenery) { s.lease.Spec.RenewTime = &metav1.MicroTime{Time: now().Add(-2 * time.Minute)} }, Failed, []string{"heirloom-5d8f", "HeirloomNotLeading"}},
		{"installed", "no Lease", gone("lease"), Failed, []string{"No replica leads"}},
		{"installed", "no election", both(flags("--leader-elect=false"), gone("lease")), OK, []string{"Leader election is off."}},
		{"installed", "no right to read the Lease", denied("Lease"), Unknown, []string{"The leader is unknown"}},
		{"installed", "no right to read Deployments", denied("DeploymentList"), Unknown, []string{"no right"}},
		{"registered", "failurePolicy", mutating(func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = nil }), Failed, []string{"MutatingWebhookConfiguration heirloom: failurePolicy should be Ignore: machines.heirloom.dev", "helm upgrade"}},
		{"registered", "timeout", mutating(func(w *admissionv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(30)) }), Failed, []string{"timeoutSeconds should be 2: machines.heirloom.dev"}},
		{"registered", "called once", mutating(func(w *admissionv1.MutatingWebhook) { w.ReinvocationPolicy = nil }), Failed, []string{"reinvocationPolicy should be IfNeeded"}},
		{"registered", "one is missing", func(s *scenery) { s.mutating.Webhooks = s.mutating.Webhooks[1:] }, Failed, []string{"not registered: controlplanes.heirloom.dev"}},
		{"registered", "the webhook of Nodes, which nobody calls", noNodes, OK, []string{"All 8 webhooks are registered."}},
		{"registered", "the webhook of the management cluster's Nodes", both(noNodes, flags("--management-cluster=fleet/self")), Failed, []string{"not registered: nodes.heirloom.dev"}},
		{"registered", "the webhook of Nodes by URL", both(noNodes, flags("--workload-webhook-url=https://h", "--workload-webhook-key-secret=a/b", "--workload-webhook-port=9444")), Failed, []string{"not registered: nodes.heirloom.dev"}},
		{"registered", "none of a kind", gone("validating"), Failed, []string{"not registered: taints.heirloom.dev, topology.taints.heirloom.dev", "helm get manifest heirloom -n heirloom-system | kubectl diff -f -"}},
		{"registered", "what an operator may choose", both(byURL, mutating(func(w *admissionv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(10)) })), OK, nil},
		{"registered", "no rights", denied("MutatingWebhookConfigurationList"), Unknown, []string{"listing MutatingWebhookConfigurations"}},
		{"versions", "a build of no release", func(s *scenery) { s.plugin = "(devel)" }, OK, []string{"Plugin (devel), server v0.3.0"}},
		{"versions", "another minor", func(s *scenery) { s.plugin = "v0.4.0" }, Warning, []string{"plugin of the server's release"}},
		{"versions", "an old Cluster API", func(s *scenery) { s.core.Spec.Template.Spec.Containers[0].Image = "x:v1.7.3" }, Failed, []string{"Cluster API is v1.7.3, but Heirloom needs v1.11.0 or later", "docs/support.md"}},
		{"versions", "no answer", func(s *scenery) { s.kube = "" }, Unknown, []string{"The API server's version is unknown"}},
		{"versions", "no rights", denied("DeploymentList"), Unknown, []string{"The server's version is unknown"}},
		{"cluster-api", "on, as was found out", core(on), OK, []string{"MachineTaintPropagation is enabled"}},
		{"cluster-api", "off, and Heirloom was told otherwise", both(core(), flags("--cluster-api-taint-propagation=enabled")), Failed, []string{"Cluster API rejects Heirloom's writes", "clusterAPITaintPropagation=auto"}},
		{"cluster-api", "on, and Heirloom was told otherwise", both(core(on), flags("--cluster-api-taint-propagation=disabled")), Warning, []string{"typed taints may not be inherited"}},
		{"cluster-api", "regexes of Cluster API alone", core(labels, "--additional-sync-machine-annotations=note"), Warning, []string{`Deployment capi-system/capi-controller-manager syncs "^team$", but Heirloom does not`}},
		{"cluster-api", "another watch filter", core("--watch-filter=blue"), Warning, []string{`has --watch-filter="blue", but Heirloom has ""`}},
		{"cluster-api", "no core manager", gone("core"), Unknown, []string{"The Deployment of Cluster API's core manager was not found"}},
		{"cluster-api", "no server", gone("deployment"), Unknown, []string{"settings are unknown", "--values"}},
	})
}

// down is the answer of an API server if a webhook that fails closed does not answer.
func down(webhook string) func(*scenery) {
	return func(s *scenery) {
		s.refused = apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: connection refused", webhook))
	}
}

// excluded excludes namespaces from the webhooks, as the chart's value webhooks.excludeNamespaces.
func excluded(namespaces ...string) func(*scenery) {
	return func(s *scenery) {
		not := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: namespaces}
		selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{not}}
		mutating(func(w *admissionv1.MutatingWebhook) { w.NamespaceSelector = selector })(s)
		for i := range s.validating.Webhooks {
			s.validating.Webhooks[i].NamespaceSelector = selector
		}
		s.unanswered = namespaces
	}
}

// unselected limits the webhooks to a label that neither a Machine nor its namespace has.
func unselected(by func(*admissionv1.MutatingWebhook, *metav1.LabelSelector)) func(*scenery) {
	return func(s *scenery) {
		mutating(func(w *admissionv1.MutatingWebhook) {
			by(w, &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}})
		})(s)
		s.unanswered = []string{"fleet"}
	}
}

// observing and only set the mode and the enrollment of the installation, inMode the label of the Cluster. mute lets no webhook answer.
func observing(s *scenery) { flags("--mode=observe")(s) }
func only(s *scenery)      { flags("--enrollment=labeled")(s) }
func mute(s *scenery)      { s.mute = true }

func inMode(mode string) func(*scenery) {
	return func(s *scenery) { s.cluster.Labels = map[string]string{inherit.ModeLabel: mode} }
}

func TestProbes(t *testing.T) {
	const called = "HeirloomWebhooksNotCalled"
	refused := func(s *scenery) { s.refused = errors.New("no quota") }
	nothing := func(s *scenery) {
		s.md.Spec.Template, s.ms.Spec.Template = clusterv1.MachineTemplateSpec{}, clusterv1.MachineTemplateSpec{}
	}
	expect(t, []finding{
		{"mutation", "it cannot be called", down(giver), Failed, []string{"failed calling webhook", called}},
		{"mutation", "another cannot be called", down("machines.example.com"), Unknown, []string{"failed calling webhook"}},
		{"mutation", "nothing to inherit", nothing, Unknown, []string{"declare a label"}},
		{"mutation", "paused", func(s *scenery) { s.cluster.Spec.Paused = new(true) }, Unknown, []string{"declare a label"}},
		{"mutation", "refused by another", refused, Unknown, []string{"no quota"}},
		{"mutation", "its namespace is excluded", excluded("fleet"), Unknown, []string{"declare a label"}},
		{"mutation", "its namespace's label is not selected", unselected(func(w *admissionv1.MutatingWebhook, by *metav1.LabelSelector) { w.NamespaceSelector = by }), Unknown, []string{"declare a label"}},
		{"mutation", "its label is not selected", unselected(func(w *admissionv1.MutatingWebhook, by *metav1.LabelSelector) { w.ObjectSelector = by }), Unknown, []string{"declare a label"}},
		{"mutation", "its namespace's label is selected", func(s *scenery) {
			s.more = append(s.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Labels: map[string]string{"team": "a"}}})
			unselected(func(w *admissionv1.MutatingWebhook, by *metav1.LabelSelector) { w.NamespaceSelector = by })(s)
			s.unanswered = nil
		}, OK, nil},
		{"mutation", "no rights", denied("MachineSetList"), Unknown, []string{"no right"}},
		{"mutation", "the installation only observes", both(observing, mute), OK, []string{"observing"}},
		{"mutation", "every Cluster is only observed", both(only, inMode("observe"), mute), OK, []string{"observing"}},
		{"mutation", "no Cluster is enrolled", both(only, mute), Skipped, []string{"label a Cluster with heirloom.dev/mode=observe"}},
		{"mutation", "the Cluster is enforced", both(only, inMode("enforce")), OK, []string{"would inherit"}},
		{"mutation", "the Cluster is enforced, and nobody answers", both(only, inMode("enforce"), mute), Failed, []string{called}},
		{"validation", "the installation only observes", both(observing, mute), OK, []string{"observing"}},
		{"validation", "every Cluster is only observed", both(only, inMode("observe"), mute), OK, []string{"observing"}},
		{"validation", "no Cluster is enrolled", both(only, mute), Skipped, []string{"label a Cluster"}},
		{"validation", "the Cluster is enforced", both(only, inMode("enforce"), excluded(metav1.NamespaceDefault)), OK, []string{"was rejected"}},
		{"validation", "the Cluster is enforced, and nobody answers", both(only, inMode("enforce"), mute), Failed, []string{called}},
		{"validation", "it cannot be called", down(refuser), Failed, []string{"failed calling webhook", called}},
		{"validation", "it refuses dry runs", func(s *scenery) {
			s.refused = apierrors.NewBadRequest(`admission webhook "taints.heirloom.dev" does not support dry run`)
		}, Unknown, []string{"does not support dry run"}},
		{"validation", "it needs no MachineSet", nothing, OK, nil},
		{"validation", "its namespace is excluded", excluded(metav1.NamespaceDefault), OK, nil},
		{"validation", "every namespace is excluded", excluded(metav1.NamespaceDefault, "fleet"), Unknown, []string{"namespaceSelector"}},
	})
	declared := map[string]string{taint.AlwaysAnnotation: reserved}
	NewWithT(t).Expect(taint.ValidateAnnotations(paths.NewPath("metadata", "annotations"), taint.Worker, declared, nil)).NotTo(BeEmpty())
}

// owned returns managed fields in which the manager owns a label of a Node.
func owned(manager string) []metav1.ManagedFieldsEntry {
	fields := metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + nodePool + `":{}}}}`)
	return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: fields}}
}

func TestFleet(t *testing.T) {
	withoutClusters := gone("cluster", "md", "ms", "machine", "node")
	cutOff := func(s *scenery) { s.workload = errors.New("no route to host") }
	unprovisioned := func(s *scenery) { s.cluster.Status = clusterv1.ClusterStatus{} }
	ignored := func(s *scenery) { s.machine.Labels = map[string]string{inherit.IgnoreLabel: ""} }
	evict := func(s *scenery) {
		declared := map[string]string{taint.AlwaysAnnotation: "gpu:NoSchedule,drain:NoExecute"}
		s.md.Spec.Template.Annotations, s.ms.Spec.Template.Annotations, s.machine.Annotations = declared, declared, declared
	}
	untainted := func(s *scenery) { s.node.Spec.Taints = nil }
	relabeled := func(s *scenery) { s.node.Labels[nodePool] = "cpu" }
	ownedBy := func(manager string) func(*scenery) {
		return func(s *scenery) { relabeled(s); s.node.ManagedFields = owned(manager) }
	}
	expect(t, []finding{
		{"workload-clusters", "unreachable", cutOff, Warning, []string{"0 of 1 workload cluster could be reached", "fleet/c: no route to host", "HeirloomWorkloadClusterDisconnected"}},
		{"workload-clusters", "not there yet", both(cutOff, unprovisioned), OK, []string{"no API server yet: fleet/c"}},
		{"workload-clusters", "none", withoutClusters, Skipped, nil},
		{"mode", "enforced", both(), OK, []string{"1 of 1 Cluster is enforced (--mode=enforce, --enrollment=all)."}},
		{"mode", "only observed", observing, OK, []string{"0 of 1 Cluster is enforced (--mode=observe, --enrollment=all).", "observing: fleet/c"}},
		{"mode", "only observed, although its label says otherwise", both(observing, inMode("enforce")), Warning, []string{"has no effect with --mode=observe: fleet/c", "mode=enforce"}},
		{"mode", "not enrolled", only, OK, []string{"not enrolled: fleet/c"}},
		{"mode", "no rights", denied("MachineList"), Unknown, []string{"no right"}},
		{"nodes", "no rights", denied("MachineList"), Unknown, []string{"no right"}},
		{"nodes", "a taint is missing", untainted, Failed, []string{"0 of 1 Node is as declared", `fleet/c: taint "gpu:NoSchedule" is missing: n`, "HeirloomNodesUnprotected"}},
		{"nodes", "a taint is missing where Heirloom only observes", both(observing, untainted), OK, []string{"0 of 1 Node is as declared", "fleet/c: observing: would be written: n"}},
		{"nodes", "a label has another value", relabeled, Failed, []string{`fleet/c: label "` + nodePool + `" differs: n`}},
		{"nodes", "it has just registered", both(untainted, func(s *scenery) { s.node.CreationTimestamp = metav1.NewTime(now().Add(-time.Minute)) }), OK, []string{"fleet/c: still registering: n"}},
		{"nodes", "it waits for its turn", evict, OK, []string{"1 of 1 Node is", "fleet/c: a NoExecute taint waits for its turn: n"}},
		{"nodes", "nobody waits", both(evict, flags("--no-execute-rate=0", "--no-execute=pace", "--no-execute-clusters=100%", "--per-cluster-no-execute=none")), Failed, []string{`taint "drain:NoExecute" is missing`}},
		{"nodes", "strangers", func(s *scenery) {
			for i := range 12 {
				s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("x%02d", i), UID: "x"}})
			}
		}, Warning, []string{"1 of 13 Nodes", "fleet/c: no Machine matches (Node and Machine need the same spec.providerID): x00, x01, x02, x03, x04, x05, x06, x07, x08, x09 and 2 more", "spec.providerID"}},
		{"nodes", "its Machine has the label heirloom.dev/ignore", both(ignored, untainted), Skipped, nil},
		{"nodes", "unreachable", cutOff, Unknown, []string{"not reached: fleet/c"}},
		{"nodes", "not there yet", both(cutOff, unprovisioned), Skipped, nil},
		{"machines", "skipped by label", ignored, Warning, []string{"0 of 1 Machine inherits", "fleet/c: " + string(inherit.HasIgnoreLabel) + ": m", inherit.IgnoreLabel}},
		{"machines", "not enrolled", only, Skipped, nil},
		{"machines", "without its owner", gone("ms"), Warning, []string{"its owner does not exist"}},
		{"machines", "none", gone("machine"), Skipped, nil},
		{"others", "a field manager", ownedBy("cloud-labeller"), Warning, []string{"field manager cloud-labeller owns the value that differs: Node n (label \"" + nodePool + "\")", "HeirloomDrift"}},
		{"others", "Cluster API's own", ownedBy("capi-machine"), OK, nil},
	})
}

// If two Heirlooms share a management cluster, check tests the Heirloom of the settings, and names the other.
func TestTwoHeirlooms(t *testing.T) {
	two := func(s *scenery) {
		other := s.deployment.DeepCopy()
		other.Namespace, other.Name = "tenant", "other"
		configuration := s.mutating.DeepCopy()
		configuration.Name, configuration.Webhooks[0].FailurePolicy = "other", new(admissionv1.Fail)
		s.more = append(s.more, other, configuration)
	}
	expect(t, []finding{
		{"installed", "the first", two, OK, []string{"this answer is for heirloom-system/heirloom (others: tenant/other;"}},
		{"registered", "the first", two, OK, nil},
		{"registered", "the other's are not its own", both(two, gone("mutating")), Failed, []string{"not registered: controlplanes.heirloom.dev"}},
		{"others", "both handle all objects", two, Warning, []string{"neither --namespace nor --watch-filter: heirloom-system/heirloom, tenant/other"}},
	})
}

// A Cluster that could not be evaluated has unknown Nodes and Machines.
func TestUnreadableClustersAreReported(t *testing.T) {
	bad := &compare.Tree{Object: &compare.Object{Cluster: types.NamespacedName{Namespace: "fleet", Name: "bad"}, Err: errors.New("no answer")}}
	for _, check := range (&Checker{trees: []*compare.Tree{bad}}).checks()[8:] {
		got := check.run(t.Context())
		NewWithT(t).Expect(got.Status).To(Equal(Unknown), check.name)
		NewWithT(t).Expect(got.lines()).To(ConsistOf("Cluster fleet/bad could not be read: no answer"), check.name)
	}
}

// docs/kubectl.md has the table of checks, and every page that a check refers to exists.
func TestDocs(t *testing.T) {
	Expect := NewWithT(t).Expect
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "kubectl.md"))
	Expect(err).NotTo(HaveOccurred())
	rows := markdown.Parse(page).Rows
	for _, check := range (&Checker{}).checks() {
		Expect(rows).To(ContainElement(HaveField("Cells", HaveExactElements("`"+check.name+"`", Not(BeEmpty())))), check.name)
	}
	sources, err := filepath.Glob("*.go")
	Expect(err).NotTo(HaveOccurred())
	for _, source := range sources {
		text, err := os.ReadFile(source)
		Expect(err).NotTo(HaveOccurred())
		for _, page := range regexp.MustCompile(`docs/[\w/-]+\.md`).FindAllString(string(text), -1) {
			Expect(filepath.Join(root, page)).To(BeAnExistingFile(), source)
		}
	}
}

func TestUntil(t *testing.T) {
	is := func(statuses ...Status) *Report {
		r := &Report{}
		for _, status := range statuses {
			r.Checks = append(r.Checks, Result{Status: status})
		}
		return r
	}
	for name, answers := range map[string][]any{
		"all well at once":             {is(OK, Warning, Unknown)},
		"until nothing fails":          {is(OK, Failed), is(OK, Failed), is(OK, Warning)},
		"until the API server answers": {errors.New("connection refused"), is(Failed), is(OK)},
		"until something is known":     {is(Unknown, Skipped), is(OK, Unknown)},
		"once":                         {is(Failed)},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			asked, told := 0, 0
			timeout := time.Hour
			if name == "once" {
				timeout = 0
			}
			report, err := Until(t.Context(), 0, timeout, func(context.Context) (*Report, error) {
				report, _ := answers[asked].(*Report)
				err, _ := answers[asked].(error)
				asked++
				return report, err
			}, func(*Report, error) { told++ })
			Expect(err).NotTo(HaveOccurred())
			Expect(report).To(BeIdenticalTo(answers[len(answers)-1]))
			Expect(asked).To(Equal(len(answers)))
			Expect(told).To(Equal(len(answers) - 1))
		})
	}
}
