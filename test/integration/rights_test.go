// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// right is one permission, or one request. In a ClusterRole, the namespace is empty.
type right struct{ namespace, group, resource, verb, name string }

func (r right) String() string {
	return fmt.Sprintf("%s %s.%s %q in namespace %q", r.verb, r.resource, r.group, r.name, r.namespace)
}

// covers reports whether the right permits a request.
func (r right) covers(request right) bool {
	return (r.namespace == "" || r.namespace == request.namespace) && r.group == request.group && r.verb == request.verb &&
		(r.resource == "*" || r.resource == request.resource) && (r.name == "" || r.name == request.name)
}

// The chart grants exactly the rights that the program uses: in all namespaces or in some, with its own certificate, and without workload
// clusters. While the program does all its work, no request is refused, and it uses every right.
func TestRights(t *testing.T) {
	t.Parallel()
	const skipped = "workload clusters skipped"
	for name, namespace := range map[string]string{"all namespaces": "", "two namespaces": fleetName + ",empty", skipped: ""} {
		t.Run(name, func(t *testing.T) {
			own := fleetName + "/own"
			args := []string{"--insecure-diagnostics=false", "--management-cluster=" + own}
			// The rights to Pods that must leave are used on a real cluster: TestNoExecuteWithinBudgets.
			values := map[string]any{"watchNamespace": namespace, "managementCluster": own, "noExecute": "pace"}
			if namespace != "" {
				values["certificates"], values["startupGates"] = map[string]any{"mode": "self"}, map[string]any{"daemonSets": true, "csiNodes": true}
				args = append(args, "--namespace="+namespace, "--webhook-cert-secret="+authority.String(), "--webhook-cert-dns-names=localhost")
			}
			if name == skipped {
				values["workloadClusters"] = map[string]any{"enabled": false}
				args = append(args, "--workload-clusters=false", "--webhook-configuration=heirloom")
			}
			s := newScene(t, stage.Options{
				WithoutProgram: true, WorkloadWebhook: name != skipped, Args: args, Values: values, Host: "localhost",
				// Older API servers do not have this feature. With it, a watch replaces the list, and no request would use the verb list.
				Env: []string{"KUBE_FEATURE_WatchListClient=false"},
			})
			gates := map[bool]string{true: "new:NoSchedule until daemonset kube-system/cni and csinode ebs.csi.aws.com"}[namespace != ""] // only then the chart grants the rights
			s.doEverything(gates)
			granted := s.granted()
			s.Expect(granted).NotTo(BeEmpty())
			s.Expect(slices.ContainsFunc(granted, func(r right) bool { return r.resource == "secrets" })).To(Equal(name != skipped))
			s.Eventually(func(g Gomega) {
				used, refused := requests(g, s.audit)
				g.Expect(refused).To(BeEmpty(), "the chart does not grant rights that the program needs")
				unused := slices.DeleteFunc(slices.Clone(granted), func(r right) bool {
					return r.namespace == "empty" || slices.ContainsFunc(used, r.covers)
				})
				g.Expect(fmt.Sprint(unused)).To(Equal("[]"), "the chart grants rights that the program does not use")
			}).WithTimeout(patience).Should(Succeed())
		})
	}
}

// Without rights, the caches never sync, and the log names the missing right. The program is live but not ready, and stops on SIGTERM.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	kubeconfig, log := filepath.Join(s.dir, "nobody.kubeconfig"), filepath.Join(s.dir, "nobody.log")
	s.Expect(s.WriteKubeconfig(kubeconfig, "nobody")).To(Succeed())
	health := s.freePort()
	process, err := controlplane.StartProcess(s.ctx, program, []string{
		"--kubeconfig=" + kubeconfig, "--webhook-cert-dir=" + s.Dir(), "--diagnostics-address=0", "--leader-elect=false",
		fmt.Sprintf("--webhook-port=%d", s.freePort()), fmt.Sprintf("--health-addr=127.0.0.1:%d", health),
	}, log)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(process.WaitReady(s.ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", health))).To(Succeed())
	s.Eventually(func() string { return s.read(log) }).WithTimeout(patience).WithPolling(polling).
		Should(MatchRegexp("machines.cluster.x-k8s.io is forbidden: .* cannot list resource"))
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(response.Body.Close()).To(Succeed())
	s.Expect(response.StatusCode).To(Equal(http.StatusInternalServerError))
	s.Expect(process.Stop()).To(Succeed(), "log: %s", s.read(log))
}

// doEverything makes the program use all its rights. gates are the start-up gates of a Node; they may be empty.
func (s *scene) doEverything(gates string) {
	s.t.Helper()
	// The program does not run yet, so no webhook refuses this taint. Later the program has something to report in Events.
	s.ensureNamespace(fleetName)
	elsewhere := stage.Cluster(fleetName, "reserved")
	s.create(elsewhere)
	reserved := stage.MachineDeployment(elsewhere, "reserved", stage.Declared{
		Taints: stage.Taints(clusterv1.MachineTaintPropagationAlways, "node.kubernetes.io/unreachable:NoExecute"),
	})
	s.create(reserved)
	ms := stage.MachineSet(reserved, "reserved")
	s.create(ms)
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())

	s.reported(ms, 1)
	// An Event about the same version of the object is repeated in a series; an Event about another version is a new Event.
	s.update(reserved, func() { reserved.Spec.Replicas = ptr.To(int32(2)) })
	s.reported(ms, 2)

	fleet := s.createFleet(func(*unstructured.Unstructured) {})
	s.create(stage.Node("prod-gpu-1"))
	own := stage.Cluster(fleetName, "own")
	s.create(own)
	declares := stage.MachineDeployment(own, "own", declared())
	declares.Spec.Template.Annotations[taint.UntilAnnotation] = gates
	s.create(declares)
	set := stage.MachineSet(declares, "own")
	s.create(set)
	node, machine := stage.Node("own"), stage.Machine(set, "own")
	s.create(node.DeepCopy(), machine) // the Node comes before its Machine, so that the loop writes it
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker")) })
	if gates != "" {
		s.Eventually(func(g Gomega) {
			used, _ := requests(g, s.audit)
			g.Expect(slices.ContainsFunc(used, func(r right) bool { return r.resource == "csinodes" })).To(BeTrue(), "the gate has not looked for its driver")
		}).WithTimeout(patience).Should(Succeed())
	}
	s.update(machine, func() { machine.Labels[inherit.IgnoreLabel] = inherit.IgnoreAndCleanUp })
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).NotTo(HaveKey(inherit.RecordLabel)) })
	prod := stage.Cluster(fleetName, "prod")
	s.get(prod)
	s.workload(prod)
	s.get(prod)
	s.update(prod, func() { prod.Labels = map[string]string{"heirloom.dev/workload-admission": "webhook"} })
	for _, value := range []string{"two", ""} {
		s.declare(value)
		for _, child := range fleet {
			if child.GetLabels()[clusterv1.ClusterNameLabel] != "prod" {
				continue
			}
			s.eventually(child, func(g Gomega) {
				if value == "" {
					g.Expect(child.GetLabels()).NotTo(HaveKey("cluster"), child.GetKind())
					return
				}
				g.Expect(child.GetLabels()).To(HaveKeyWithValue("cluster", value), child.GetKind())
			})
		}
	}
	s.readMetrics()
}

// reported waits until Events have reported this number of times that an object could not inherit an entry.
func (s *scene) reported(object client.Object, times int32) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		list := &eventsv1.EventList{}
		g.Expect(s.Client.List(s.ctx, list, client.InNamespace(object.GetNamespace()))).To(Succeed())
		count := int32(0)
		for _, event := range list.Items {
			if event.Reason == "NotInherited" && event.Regarding.Name == object.GetName() {
				count++
				if event.Series != nil {
					count += event.Series.Count - 1
				}
			}
		}
		g.Expect(count).To(BeNumerically(">=", times))
	}).WithTimeout(patience).Should(Succeed())
}

// readMetrics reads the metrics as a user with the right to do so.
func (s *scene) readMetrics() {
	s.t.Helper()
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "reader"}}
	s.create(reader, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: stage.Namespace, Name: "reader"}},
	})
	token := &authenticationv1.TokenRequest{}
	s.Expect(s.Client.SubResource("token").Create(s.ctx, reader, token)).To(Succeed())
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, strings.Replace(s.MetricsURL, "http:", "https:", 1), nil)
	s.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token.Status.Token)
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Do(request)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(response.Body.Close()).To(Succeed())
	s.Expect(response.StatusCode).To(Equal(http.StatusOK))
}

// granted returns the rights in all roles that are bound to the program's ServiceAccount.
func (s *scene) granted() []right {
	s.t.Helper()
	var rights []right
	clusterBindings, bindings := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	s.Expect(s.Client.List(s.ctx, clusterBindings)).To(Succeed())
	for _, binding := range clusterBindings.Items {
		if slices.ContainsFunc(binding.Subjects, ofProgram) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: binding.RoleRef.Name}}
			s.get(role)
			rights = append(rights, rightsIn("", role.Rules)...)
		}
	}
	s.Expect(s.Client.List(s.ctx, bindings)).To(Succeed())
	for _, binding := range bindings.Items {
		if slices.ContainsFunc(binding.Subjects, ofProgram) {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: binding.Namespace, Name: binding.RoleRef.Name}}
			s.get(role)
			rights = append(rights, rightsIn(binding.Namespace, role.Rules)...)
		}
	}
	return rights
}

func ofProgram(subject rbacv1.Subject) bool {
	return "system:serviceaccount:"+subject.Namespace+":"+subject.Name == stage.ServiceAccount
}

func rightsIn(namespace string, rules []rbacv1.PolicyRule) []right {
	var rights []right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						rights = append(rights, right{namespace, group, resource, verb, name})
					}
				}
			}
		}
	}
	return rights
}

// requests returns the requests of the program in the audit log: the rights that it used, and the refused requests.
func requests(g Gomega, audit tail) (used []right, refused []string) {
	events, err := audit.events()
	g.Expect(err).NotTo(HaveOccurred())
	for _, event := range events {
		if event.User.Username != stage.ServiceAccount || event.ObjectRef == nil {
			continue
		}
		ref := event.ObjectRef
		r := right{ref.Namespace, ref.APIGroup, strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/"), event.Verb, ref.Name}
		if event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
			refused = append(refused, r.String()+": "+event.ResponseStatus.Message)
			continue
		}
		used = append(used, r)
	}
	return used, refused
}
