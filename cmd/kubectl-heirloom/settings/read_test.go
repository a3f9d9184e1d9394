// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// server is a Deployment of Heirloom: "<namespace>/<name> <image> <argument>…".
func server(line string) *appsv1.Deployment {
	return deployment(line, map[string]string{partOfLabel: heirloom, componentLabel: component, versionLabel: "v0.2.0"})
}

// core is a Deployment of Cluster API's core manager.
func core(line string) *appsv1.Deployment {
	return deployment(line, map[string]string{"cluster.x-k8s.io/provider": "cluster-api"})
}

func deployment(line string, labels map[string]string) *appsv1.Deployment {
	words := strings.Fields(line)
	namespace, name, _ := strings.Cut(words[0], "/")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "sidecar", Image: "proxy:v9.9.9"}, {Name: "manager", Image: words[1], Args: words[2:]},
	}
	return d
}

// with is a management cluster with these Deployments. Lists of a namespace that is in forbidden fail; "" stands for all.
func with(forbidden []string, deployments ...client.Object) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithObjects(deployments...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			by := (&client.ListOptions{}).ApplyOptions(options)
			for _, namespace := range forbidden {
				if by.Namespace == namespace {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", errors.New("no"))
				}
			}
			return c.List(ctx, list, options...)
		},
	})
}

const (
	gateOn  = "capi-system/capi r/cluster-api-controller:v1.13.1 --leader-elect --feature-gates=MachinePool=true,MachineTaintPropagation=true --other x"
	gateOff = "capi-system/capi r/cluster-api-controller:v1.13.1 --feature-gates=MachineTaintPropagation=false,AllAlpha=true"
)

func TestRead(t *testing.T) {
	for _, tc := range []struct {
		name      string
		flags     Flags
		forbidden []string
		objects   []client.Object
		check     func(Expect func(any, ...any) Assertion, s Settings)
		notes     []string
	}{
		{
			name: "the running server",
			objects: []client.Object{
				server("hs/own r/heirloom:v0.3.0 --watch-filter=blue --additional-sync-machine-labels=^a$ --additional-sync-machine-labels b --leader_elect"), core(gateOn),
				deployment("hs/else r/other:v1.0.0 --watch-filter=red", map[string]string{componentLabel: component, partOfLabel: "else"}),
			},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Known).To(BeTrue())
				Expect(s.Origin).To(Equal("Deployment hs/own"))
				Expect([]string{s.Version, s.ClusterAPI}).To(Equal([]string{"v0.3.0", "v1.13.1"}))
				Expect(s.Config.WatchFilter).To(Equal("blue"))
				Expect(s.Config.AdditionalSyncMachineLabels).To(Equal([]string{"^a$", "b"}))
				Expect(s.Config.Rules.AdditionalLabels).To(HaveLen(2))
				Expect(s.Config.LeaderElect).To(BeTrue(), "as the server reads underscores")
				Expect(s.Config.LeaderElectNamespace).To(Equal("hs"), "the Pod finds its own")
				Expect(s.Config.WebhookConfiguration).To(Equal("own"), "as the chart names it")
				Expect(s.Policy().ClusterAPITaints).To(Equal(inherit.PropagationEnabled))
			},
		},
		{
			name:    "what the server was told about Cluster API counts more than its gate",
			objects: []client.Object{server("hs/own r/heirloom:v0.3.0 --cluster-api-taint-propagation=disabled"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Propagation).To(Equal(inherit.PropagationDisabled))
				Expect(s.ClusterAPI).To(Equal("v1.13.1"))
			},
		},
		{
			name:    "flags of a newer server",
			objects: []client.Object{server("hs/own r/heirloom:v0.3.0 --watch-filter=blue --brand-new x --newer=y --sync-period=often --workload-admission=magic --no-execute-rate=2"), core(gateOff)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Known).To(BeTrue())
				Expect(s.Config.WatchFilter).To(Equal("blue"))
				Expect(s.Config.NoExecuteRate).To(Equal(2.0), "flags after those are read")
				Expect(s.Propagation).To(Equal(inherit.PropagationDisabled))
			},
			notes: []string{
				"The server has flags that this plugin does not know (--brand-new, --newer), so the server is newer or older: use the plugin of the server's release.",
				"This plugin does not understand the server's value of --sync-period, --workload-admission and assumes the default: use the plugin of the server's release, or give them with --values or --server-flags.",
			},
		},
		{
			name:    "several",
			objects: []client.Object{server("b/two r/heirloom:v0.3.0 --watch-filter=two"), server("a/one r/heirloom:v0.3.0 --watch-filter=one"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Config.WatchFilter).To(Equal("one"))
				Expect(s.Others).To(Equal([]types.NamespacedName{{Namespace: "b", Name: "two"}}))
			},
			notes: []string{"There are several Heirlooms, and this answer is about a/one (others: b/two): choose one with --heirloom-namespace."},
		},
		{
			name: "one of several", flags: Flags{Namespace: "b"}, forbidden: []string{""},
			objects: []client.Object{server("b/two r/heirloom:v0.3.0 --watch-filter=two"), server("a/one r/heirloom:v0.3.0"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Config.WatchFilter).To(Equal("two"))
				Expect(s.Others).To(BeEmpty())
				Expect(s.Propagation).To(Equal(inherit.PropagationEnabled), "found where it usually is")
			},
		},
		{
			name: "forbidden, but not where it usually is", forbidden: []string{""},
			objects: []client.Object{server("heirloom-system/heirloom r/heirloom:v0.3.0 --watch-filter=two"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Config.WatchFilter).To(Equal("two"))
				Expect(s.Propagation).To(Equal(inherit.PropagationEnabled))
			},
		},
		{
			name: "forbidden", forbidden: []string{"", "heirloom-system", "capi-system"},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Known).To(BeFalse())
				Expect(s.Origin).To(Equal("the defaults"))
				Expect(s.Config.WebhookConfiguration).To(Equal("heirloom"))
				Expect(s.Propagation).To(Equal(inherit.PropagationUnknown))
			},
			notes: []string{
				"The server's settings are unknown, because you may not list Deployments, so the defaults are assumed: use --heirloom-namespace if you may list those of one namespace, or give them with --values or --server-flags.",
				"Whether Cluster API propagates taints itself is unknown, because you may not list its Deployments: " + sayPropagation,
			},
		},
		{
			name: "not there", flags: Flags{Namespace: "c"}, objects: []client.Object{server("a/one r/heirloom:v0.3.0")},
			check: func(Expect func(any, ...any) Assertion, s Settings) { Expect(s.Known).To(BeFalse()) },
			notes: []string{
				"The server's settings are unknown, because there is no Heirloom in namespace c, so the defaults are assumed: use another --heirloom-namespace, or give them with --values or --server-flags.",
				"Whether Cluster API propagates taints itself is unknown, because its Deployment was not found: " + sayPropagation,
			},
		},
		{
			name: "nowhere", objects: []client.Object{core(gateOff)},
			check: func(Expect func(any, ...any) Assertion, s Settings) { Expect(s.Known).To(BeFalse()) },
			notes: []string{"The server's settings are unknown, because Heirloom has no Deployment in this cluster, so the defaults are assumed: if it runs elsewhere, give them with --values or --server-flags."},
		},
		{
			name: "flags instead of the server", flags: Flags{ServerFlags: []string{`--watch-filter=green --additional-sync-machine-labels='^my\.key/'`, `"--no-execute-rate 3"`}},
			objects: []client.Object{server("a/one r/heirloom:v0.3.0"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Known).To(BeTrue())
				Expect(s.Origin).To(Equal("--server-flags"))
				Expect(s.Config.WatchFilter).To(Equal("green"))
				Expect(s.Config.AdditionalSyncMachineLabels).To(Equal([]string{`^my\.key/`}))
				Expect(s.Config.NoExecuteRate).To(Equal(3.0))
				Expect(s.Propagation).To(Equal(inherit.PropagationEnabled), "Cluster API's is read all the same")
			},
		},
		{
			name: "environment variables", objects: []client.Object{server("a/one r/heirloom:v0.3.0 --namespace=$(NS)"), core(gateOn)},
			check: func(Expect func(any, ...any) Assertion, s Settings) { Expect(s.Config.Namespace).To(BeEmpty()) },
			notes: []string{
				"This plugin does not understand the server's value of --namespace and assumes the default: use the plugin of the server's release, or give them with --values or --server-flags.",
				"The server's flags use environment variables, which this plugin does not resolve: give them with --values or --server-flags.",
			},
		},
		{
			name:    "Cluster APIs that differ",
			objects: []client.Object{server("a/one r/heirloom:v0.3.0"), core(gateOn), core("zz/capi r/c:v1.13.0")},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Propagation).To(Equal(inherit.PropagationUnknown))
			},
			notes: []string{"Whether Cluster API propagates taints itself is unknown, because its Deployments capi-system/capi and zz/capi differ in that: " + sayPropagation},
		},
		{
			name:    "a Cluster API that came later",
			objects: []client.Object{server("a/one r/heirloom:v0.3.0"), core("x/capi r/c:v1.15.0 --leader-elect")},
			check: func(Expect func(any, ...any) Assertion, s Settings) {
				Expect(s.Propagation).To(Equal(inherit.PropagationUnknown))
			},
			notes: []string{"Whether Cluster API v1.15.0 propagates taints itself is unknown, because this plugin knows it only up to 1.14: " + sayPropagation},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s, err := tc.flags.Read(t.Context(), with(tc.forbidden, tc.objects...))
			Expect(err).NotTo(HaveOccurred())
			tc.check(Expect, s)
			Expect(s.Notes).To(Equal(tc.notes))
		})
	}
}

func TestReadFailsWithoutAnAPIServer(t *testing.T) {
	Expect := NewWithT(t).Expect
	broken := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no route")
		},
	})
	_, err := (&Flags{}).Read(t.Context(), broken)
	Expect(err).To(MatchError("looking for Heirloom's Deployment: no route"))
	_, err = (&Flags{ServerFlags: []string{"--watch-filter=a"}}).Read(t.Context(), broken)
	Expect(err).To(MatchError("looking for Cluster API's Deployment: no route"))
}

func TestOffline(t *testing.T) {
	Expect := NewWithT(t).Expect
	s, err := (&Flags{ServerFlags: []string{"--cluster-api-taint-propagation=enabled"}}).Offline()
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Policy().ClusterAPITaints).To(Equal(inherit.PropagationEnabled))
	Expect(s.Notes).To(BeEmpty())

	s, err = (&Flags{}).Offline()
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Known).To(BeFalse())
	Expect(s.Notes).To(HaveLen(1))

	for flags, want := range map[string]string{
		"--brand-new=x":                      "--server-flags: unknown flag: --brand-new",
		"watch-filter=x":                     `--server-flags: "watch-filter=x" is no flag of the server`,
		"--no-execute-rate=-1":               "--server-flags: --no-execute-rate=-1",
		"--additional-sync-machine-labels=(": "--server-flags: --additional-sync-machine-labels: error parsing regexp",
	} {
		_, err := (&Flags{ServerFlags: []string{flags}}).Offline()
		Expect(err).To(MatchError(HavePrefix(want)))
	}
}
