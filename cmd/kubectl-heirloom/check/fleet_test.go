// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// withoutClusters leaves nothing of the fleet.
func withoutClusters(s *scenery) { s.gone = append(s.gone, "cluster", "md", "ms", "machine", "node") }

func unreachable(s *scenery) { s.workload = errors.New("no route to host") }

func noMachines(s *scenery) { s.denied = []string{"MachineList"} }

func TestWorkloadClusters(t *testing.T) {
	expect(t, "workload-clusters", []finding{
		{name: "reached", status: OK, message: "1 workload cluster could be reached."},
		{name: "unreachable", change: unreachable, status: Warning, message: "1 workload cluster cannot be reached from here.",
			detail: "fleet/c: no route to host", next: "HeirloomWorkloadClusterDisconnected"},
		{name: "not there yet", change: func(s *scenery) { unreachable(s); s.cluster.Status = clusterv1.ClusterStatus{} }, status: OK,
			message: "0 workload clusters",
			detail:  "has no API server yet: fleet/c"},
		{name: "none", change: withoutClusters, status: Skipped, message: "There is no Cluster."},
		{name: "no rights", change: noMachines, status: Unknown, message: "The Clusters could not be read"},
	})
}

func TestNodes(t *testing.T) {
	const runbook = "HeirloomNodesUnprotected"
	evict := func(s *scenery) {
		declared := map[string]string{taint.AlwaysAnnotation: "gpu:NoSchedule,drain:NoExecute"}
		s.md.Spec.Template.Annotations, s.ms.Spec.Template.Annotations, s.machine.Annotations = declared, declared, declared
	}
	expect(t, "nodes", []finding{
		{name: "all well", status: OK, message: "1 Node has all that it inherits."},
		{name: "a taint is missing", change: func(s *scenery) { s.node.Spec.Taints = nil }, status: Failed,
			message: "1 Node lacks something that Machines declare.",
			detail:  `fleet/c, Node n lacks, or has with another value: taint "gpu:NoSchedule"`, next: runbook},
		{name: "a label has another value", change: func(s *scenery) { s.node.Labels[nodePool] = "cpu" }, status: Failed, message: "1 Node lacks",
			detail: `label "` + nodePool + `"`, next: runbook},
		{name: "it has just registered", change: func(s *scenery) {
			s.node.Spec.Taints, s.node.CreationTimestamp = nil, metav1.NewTime(now().Add(-time.Minute))
		},
			status: OK, message: "1 Node is still registering."},
		{name: "it waits for its turn", change: evict, status: OK, message: "1 Node has all",
			detail: "fleet/c: 1 Node waits for its turn to get a taint that evicts Pods: n"},
		{name: "nobody waits", change: func(s *scenery) { evict(s); s.flag("--no-execute-rate=0") }, status: Failed, message: "1 Node lacks",
			detail: `taint "drain:NoExecute"`, next: runbook},
		{name: "strangers", change: func(s *scenery) {
			for i := range 12 {
				s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("x%02d", i), UID: "x"}})
			}
		}, status: Warning, message: "1 Node has all that it inherits, 12 Nodes belong to no Machine.",
			detail: "fleet/c: without a Machine: x00, x01, x02, x03, x04, x05, x06, x07, x08, x09 and 2 more", next: "spec.providerID"},
		{name: "its Machine is opted out", change: func(s *scenery) {
			s.machine.Labels = map[string]string{inherit.IgnoreLabel: ""}
			s.node.Spec.Taints = nil
		}, status: Skipped, message: "There is no Node of a Machine."},
		{name: "unreachable", change: unreachable, status: Unknown, message: "No workload cluster could be reached."},
		{name: "none", change: withoutClusters, status: Skipped, message: "There is no Node of a Machine."},
		{name: "no rights", change: noMachines, status: Unknown, message: "The Clusters could not be read"},
	})
}

func TestMachines(t *testing.T) {
	expect(t, "machines", []finding{
		{name: "all inherit", status: OK, message: "1 Machine, none paused or opted out."},
		{name: "opted out", change: func(s *scenery) { s.machine.Labels = map[string]string{inherit.IgnoreLabel: ""} }, status: Warning,
			message: "1 of 1 Machine inherits nothing.", detail: "fleet/c: " + string(inherit.IsIgnored) + ": m", next: inherit.IgnoreLabel},
		{name: "paused with its Cluster", change: func(s *scenery) { s.cluster.Spec.Paused = new(true) }, status: Warning, message: "1 of 1",
			detail: "fleet/c: " + string(inherit.ClusterIsPaused) + ": m", next: "unpause"},
		{name: "without its owner", change: func(s *scenery) { s.gone = []string{"ms"} }, status: Warning, message: "1 of 1",
			detail: "its owner does not exist", next: "unpause"},
		{name: "none", change: func(s *scenery) { s.gone = []string{"machine"} }, status: Skipped, message: "There is no Machine."},
		{name: "no rights", change: noMachines, status: Unknown, message: "The Clusters could not be read"},
	})
}

func TestOthers(t *testing.T) {
	const some, drift = "Something may change what Heirloom gives to objects.", "HeirloomDrift"
	later := func(name string, groups, resources []string) func(*scenery) {
		return func(s *scenery) {
			rule := admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources},
			}
			s.more = append(s.more, &admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.MutatingWebhook{{Name: "w.example.com", Rules: []admissionv1.RuleWithOperations{rule}}},
			})
		}
	}
	owned := func(manager string) func(*scenery) {
		return func(s *scenery) {
			s.node.Labels[nodePool] = "cpu"
			s.node.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: manager, Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + nodePool + `":{}}}}`),
			}}
		}
	}
	tracked := func(s *scenery) { s.machine.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"} }
	once := func(s *scenery) {
		for i := range s.mutating.Webhooks {
			s.mutating.Webhooks[i].ReinvocationPolicy = nil
		}
	}
	last := func(change func(*scenery)) func(*scenery) { return func(s *scenery) { once(s); change(s) } }
	expect(t, "others", []finding{
		{name: "a later webhook, after which ours is called again", change: later("kyverno", []string{"*"}, []string{"*"}), status: OK},
		{name: "none", status: OK, message: "No other webhook comes after Heirloom's"},
		{name: "a webhook for everything", change: last(later("kyverno", []string{"*"}, []string{"*"})), status: Warning, message: some,
			detail: "MutatingWebhookConfiguration kyverno: webhook w.example.com is called after Heirloom's, for machinedeployments, machinesets, machines, nodes", next: drift},
		{name: "a webhook for Nodes", change: last(later("kyverno", []string{""}, []string{"pods", "nodes"})), status: Warning, message: some,
			detail: "Heirloom's, for nodes", next: drift},
		{name: "one for Pods", change: last(later("kyverno", []string{""}, []string{"pods"})), status: OK},
		{name: "one that is called before", change: last(later("capi", []string{"*"}, []string{"*"})), status: OK},
		{name: "a field manager", change: owned("cloud-labeller"), status: Warning, message: some,
			detail: "field manager cloud-labeller owns what should be inherited, with another value: Node n of Cluster fleet/c (.metadata.labels." + nodePool + ")", next: drift},
		{name: "Cluster API's own", change: owned("capi-machine"), status: OK},
		{name: "a Machine in Git", change: tracked, status: Warning, message: some,
			detail: "Machine fleet/m is made by Cluster API, and argocd.argoproj.io/tracking-id says", next: drift},
		{name: "a MachineDeployment in Git",
			change: func(s *scenery) { s.md.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"} }, status: OK},
		{name: "no rights", change: noMachines, status: Unknown, message: "Not everything could be read.", detail: "The Clusters could not be read"},
	})
}

func TestClusterAPI(t *testing.T) {
	const told = "Cluster API and Heirloom are told different things."
	core := func(flags ...string) func(*scenery) {
		return func(s *scenery) { s.core.Spec.Template.Spec.Containers[0].Args = flags }
	}
	both := func(change func(*scenery), flags ...string) func(*scenery) {
		return func(s *scenery) { change(s); s.flag(flags...) }
	}
	const on, labels = "--feature-gates=MachineTaintPropagation=true", "--additional-sync-machine-labels=^team$"
	expect(t, "cluster-api", []finding{
		{name: "they agree", status: OK, message: "MachineTaintPropagation is disabled"},
		{name: "on, as was found out", change: core(on), status: OK, message: "MachineTaintPropagation is enabled"},
		{name: "on, as Heirloom was told", change: both(core(on), "--cluster-api-taint-propagation=enabled"), status: OK},
		{name: "off, and Heirloom was told otherwise", change: both(core(), "--cluster-api-taint-propagation=enabled"), status: Failed,
			message: told,
			detail:  "Cluster API refuses what Heirloom writes", next: "clusterAPITaintPropagation=auto"},
		{name: "on, and Heirloom was told otherwise", change: both(core(on), "--cluster-api-taint-propagation=disabled"), status: Warning,
			message: told,
			detail:  "typed taints are not inherited", next: "docs/configuration.md"},
		{name: "the same regexes", change: both(core(labels), labels), status: OK},
		{name: "regexes of Cluster API alone", change: core(labels, "--additional-sync-machine-annotations=note"), status: Warning, message: told,
			detail: `Deployment capi-system/capi-controller-manager syncs labels "^team$", and Heirloom does not`, next: "docs/configuration.md"},
		{name: "regexes of Heirloom alone", change: both(core(), labels), status: OK, detail: `labels "^team$" are synced by Heirloom alone`},
		{name: "another watch filter", change: core("--watch-filter=blue"), status: Warning, message: told,
			detail: `has --watch-filter="blue", and Heirloom ""`, next: "docs/configuration.md"},
		{name: "flags that nobody can read", change: core("--additional-sync-machine-labels"), status: Warning, message: told,
			detail: "cannot be read", next: "docs"},
		{name: "no core manager", change: func(s *scenery) { s.gone = []string{"core"} }, status: Unknown,
			message: "No Deployment of Cluster API's core manager was found.", detail: "its Deployment was not found"},
		{name: "no server", change: func(s *scenery) { s.gone = []string{"deployment"} }, status: Unknown,
			message: "The server's settings are not known.", detail: "Heirloom has no Deployment", next: "--values"},
		{name: "no rights", change: func(s *scenery) { s.denied = []string{"DeploymentList"} }, status: Unknown,
			message: "Cluster API's Deployments could not be read"},
	})
}

// A check that gets no answer is unknown, and keeps nobody waiting.
func TestWithin(t *testing.T) {
	Expect := NewWithT(t).Expect
	hangs := make(chan struct{})
	defer close(hangs)
	_, err := within(t.Context(), time.Nanosecond, func(context.Context) (client.Client, error) { <-hangs; return nil, nil })
	Expect(err).To(MatchError(context.DeadlineExceeded))
	value, err := within(t.Context(), time.Hour, func(context.Context) (int, error) { return 7, nil })
	Expect(value, err).To(Equal(7))
}
