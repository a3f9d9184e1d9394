// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// server returns a Deployment of Heirloom from "<namespace>/<name> <image> <argument>…".
func server(line string) *appsv1.Deployment {
	return deployment(line, map[string]string{partOfLabel: heirloom, componentLabel: component, versionLabel: "v0.2.0"})
}

// core returns a Deployment of Cluster API's core manager.
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

// with returns a management cluster with these Deployments. Lists in the forbidden namespaces fail; "" stands for a list of all namespaces.
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

const (
	assumed        = ", so the defaults are assumed (use --values, --server-flags or --heirloom-namespace)."
	sayPropagation = ` (use --server-flags=--cluster-api-taint-propagation=enabled or …=disabled).`
)

func TestRead(t *testing.T) {
	const (
		server1 = "hs/own r/heirloom:v0.3.0 "
		refused = "This plugin does not know flags %s of the server, or their values, and assumes the defaults: use the plugin of the server's release, or --values or --server-flags."
		unknown = "Cluster API's feature gate MachineTaintPropagation is unknown, because "
	)
	for _, tc := range []struct {
		name      string
		flags     Flags
		forbidden []string
		objects   []client.Object
		// want is "<known> <origin>, <version>, <Cluster API's>: <watch filter> <no-execute rate> <webhook configuration> <namespace of the Lease> <propagation>".
		want  string
		notes []string
	}{
		{
			name: "the running server", want: "true Deployment hs/own, v0.3.0, v1.13.1: blue 1 own hs enabled",
			objects: []client.Object{
				server(server1 + "--watch-filter=blue --additional-sync-machine-labels=^a$ --additional-sync-machine-labels b --leader_elect"), core(gateOn),
				deployment("hs/else r/other:v1.0.0 --watch-filter=red", map[string]string{componentLabel: component, partOfLabel: "else"}),
			},
		}, {
			name: "what the server was told about Cluster API counts more than its gate", want: "true Deployment hs/own, v0.3.0, v1.13.1:  1 own hs disabled",
			objects: []client.Object{server(server1 + "--cluster-api-taint-propagation=disabled"), core(gateOn)},
		}, {
			name: "flags of a newer server", want: "true Deployment hs/own, v0.3.0, v1.13.1: blue 2 own hs disabled",
			objects: []client.Object{server(server1 + "--watch-filter=blue --brand-new x --newer=y --sync-period=often --workload-admission=magic --no-execute-rate=2"), core(gateOff)},
			notes:   []string{fmt.Sprintf(refused, "--brand-new, --newer, --sync-period, --workload-admission")},
		}, {
			name: "several", want: "true Deployment a/one, v0.3.0, v1.13.1: one 1 one a enabled",
			objects: []client.Object{server("b/two r/heirloom:v0.3.0 --watch-filter=two"), server("a/one r/heirloom:v0.3.0 --watch-filter=one"), core(gateOn)},
			notes:   []string{"Found several Heirlooms; this answer is for a/one (others: b/two; use --heirloom-namespace)."},
		}, {
			name: "one of several", flags: Flags{Namespace: "b"}, forbidden: []string{""}, want: "true Deployment b/two, v0.3.0, v1.13.1: two 1 two b enabled",
			objects: []client.Object{server("b/two r/heirloom:v0.3.0 --watch-filter=two"), server("a/one r/heirloom:v0.3.0"), core(gateOn)},
		}, {
			name: "forbidden, but not where it usually is", forbidden: []string{""}, want: "true Deployment heirloom-system/heirloom, v0.3.0, v1.13.1: two 1 heirloom heirloom-system enabled",
			objects: []client.Object{server("heirloom-system/heirloom r/heirloom:v0.3.0 --watch-filter=two"), core(gateOn)},
		}, {
			name: "forbidden", forbidden: []string{"", "heirloom-system", "capi-system"}, want: "false the defaults, , :  1 heirloom  unknown",
			notes: []string{"The server's settings are unknown, because you may not list Deployments" + assumed, unknown + "you may not list its Deployments" + sayPropagation},
		}, {
			name: "not there", flags: Flags{Namespace: "c"}, objects: []client.Object{server("a/one r/heirloom:v0.3.0")}, want: "false the defaults, , :  1 heirloom  unknown",
			notes: []string{"The server's settings are unknown, because there is no Heirloom in namespace c" + assumed, unknown + "its Deployment was not found" + sayPropagation},
		}, {
			name: "nowhere", objects: []client.Object{core(gateOff)}, want: "false the defaults, , v1.13.1:  1 heirloom  disabled",
			notes: []string{"The server's settings are unknown, because Heirloom has no Deployment in this cluster" + assumed},
		}, {
			name: "flags instead of the server", flags: Flags{ServerFlags: []string{`--watch-filter=blue --additional-sync-machine-labels=^my\.key/`, "--no-execute-rate 3 --watch-filter=green"}},
			objects: []client.Object{server("a/one r/heirloom:v0.3.0"), core(gateOn)}, want: "true --server-flags, , v1.13.1: green 3 heirloom  enabled",
		}, {
			name: "environment variables", objects: []client.Object{server(server1 + "--namespace=$(NS)"), core(gateOn)}, want: "true Deployment hs/own, v0.3.0, v1.13.1:  1 own hs enabled",
			notes: []string{fmt.Sprintf(refused, "--namespace"),
				"The server's flags use environment variables, which this plugin does not resolve (use --values or --server-flags)."},
		}, {
			name: "Cluster APIs that differ", objects: []client.Object{server(server1), core(gateOn), core("zz/capi r/c:v1.13.0")}, want: "true Deployment hs/own, v0.3.0, v1.13.1:  1 own hs unknown",
			notes: []string{unknown + "its Deployments capi-system/capi and zz/capi have different settings" + sayPropagation},
		}, {
			name: "a Cluster API that came later", objects: []client.Object{server(server1), core("x/capi r/c:v1.15.0 --leader-elect")}, want: "true Deployment hs/own, v0.3.0, v1.15.0:  1 own hs unknown",
			notes: []string{unknown + "it has version v1.15.0, but this plugin knows only versions up to 1.14" + sayPropagation},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s, err := tc.flags.Read(t.Context(), with(tc.forbidden, tc.objects...))
			Expect(err).NotTo(HaveOccurred())
			c := s.Config
			Expect(fmt.Sprintf("%v %s, %s, %s: %s %v %s %s %s", s.Known, s.Origin, s.Version, s.ClusterAPI,
				c.WatchFilter, c.NoExecuteRate, c.WebhookConfiguration, c.LeaderElectNamespace, s.Policy().ClusterAPITaints)).To(Equal(tc.want))
			Expect(s.Notes).To(Equal(tc.notes))
		})
	}
}

func TestReadFailsWithoutAnAPIServer(t *testing.T) {
	broken := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no route")
		},
	})
	_, err := (&Flags{}).Read(t.Context(), broken)
	NewWithT(t).Expect(err).To(MatchError("looking for Heirloom's Deployment: no route"))
	_, err = (&Flags{ServerFlags: []string{""}}).Read(t.Context(), broken)
	NewWithT(t).Expect(err).To(MatchError("looking for Cluster API's Deployment: no route"))
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
		"--watch-filter='a":                  `--server-flags="--watch-filter='a": must not contain quotes`,
		"--brand-new=x":                      "--server-flags: unknown flag: --brand-new",
		"watch-filter=x":                     `--server-flags: unknown flag of the server: "watch-filter=x"`,
		"--no-execute-rate=-1":               "--server-flags: --no-execute-rate=-1",
		"--additional-sync-machine-labels=(": "--server-flags: --additional-sync-machine-labels: error parsing regexp",
	} {
		_, err := (&Flags{ServerFlags: []string{flags}}).Offline()
		Expect(err).To(MatchError(HavePrefix(want)))
	}
}

func TestApart(t *testing.T) {
	for _, tc := range []struct {
		plugin, server string
		apart          bool
	}{
		{"v0.3.1", "0.3.0", false}, {"v0.2.9", "v0.3.0", true}, {"v0.10.0", "v0.9.0", true}, {"v1.3.0", "v0.3.0", true},
		// Development builds are not compared.
		{"v0.3.0-4-gabc1234", "v0.4.0", false}, {"(devel)", "v0.3.0", false}, {"v0.0.0-20261122101010-abcdef123456", "v0.3.0", false}, {"v0.3.0", "latest", false}, {"v0.3.0", "", false},
	} {
		NewWithT(t).Expect(Apart(tc.plugin, tc.server) != "").To(Equal(tc.apart), "%+v", tc)
	}
}

// The plugin's default for Cluster API's gate is the default of the release that the module requires.
func TestClusterAPIsDefault(t *testing.T) {
	NewWithT(t).Expect(feature.Gates.Enabled(featureGate)).To(BeFalse())
	NewWithT(t).Expect(newerThanKnown("v1.14.9")).To(BeFalse())
	NewWithT(t).Expect(newerThanKnown("v1.15.0")).To(BeTrue())
	NewWithT(t).Expect(newerThanKnown("latest")).To(BeFalse())
	NewWithT(t).Expect(PropagationOf(core("x/y r/c:v1.13.0 --feature-gates=AllAlpha=true")).String()).To(Equal("enabled"))
}
