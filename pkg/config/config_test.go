// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// complete parses a command line and returns its Config.
func complete(t *testing.T, args ...string) (*config.Config, error) {
	t.Helper()
	options := config.NewOptions()
	fs := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(fs)
	NewWithT(t).Expect(fs.Parse(args)).To(Succeed())
	return options.Complete()
}

func TestDefaults(t *testing.T) {
	Expect := NewWithT(t).Expect
	c, err := complete(t)
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Watched()).To(Equal([]string{""}), "all namespaces")
	Expect(c.WatchFilter).To(BeEmpty(), "all objects")
	Expect(c.WorkloadClusters).To(BeTrue())
	Expect(c.ManagementClusterKey).To(Equal(types.NamespacedName{}))
	Expect(c.SyncPeriod).To(Equal(10 * time.Minute))
	Expect(c.HealthAddr).To(Equal(":9440"))
	Expect(c.WebhookPort).To(Equal(9443))
	Expect(c.WebhookCertDir).To(Equal("/tmp/k8s-webhook-server/serving-certs/"))
	Expect(c.ShutdownDelay).To(BeZero())
	Expect(c.KubeAPIQPS).To(BeEquivalentTo(100))
	Expect(c.KubeAPIBurst).To(Equal(200))
	Expect(c.LeaderElect).To(BeFalse())
	Expect([]time.Duration{c.LeaderElectLeaseDuration, c.LeaderElectRenewDeadline, c.LeaderElectRetryPeriod}).
		To(Equal([]time.Duration{15 * time.Second, 10 * time.Second, 2 * time.Second}))
	Expect(c.DetectTaintPropagation).To(BeTrue())
	Expect(c.Rules).To(Equal(inherit.Policy{PaceEviction: true, Mode: inherit.Enforce, SyncAllowed: []string{"*"}}))
	Expect(c.TLS).NotTo(BeEmpty())
	Expect(c.Metrics.BindAddress).To(Equal(":8443"))
	Expect(c.Metrics.SecureServing).To(BeTrue())
}

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		name  string
		args  []string
		check func(Gomega, *config.Config)
	}{
		{name: "regexes are compiled, several from one flag or from many", args: []string{"--additional-sync-machine-labels=^a$,b", "--additional-sync-machine-labels=c"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.AdditionalLabels).To(HaveLen(3))
			g.Expect(c.Rules.AdditionalLabels[0].MatchString("ab")).To(BeFalse())
			g.Expect(c.Rules.AdditionalLabels[2].MatchString("abc")).To(BeTrue())
			g.Expect(c.Rules.AdditionalAnnotations).To(BeEmpty())
		}},
		{name: "annotations have regexes of their own", args: []string{"--additional-sync-machine-annotations=x"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.AdditionalAnnotations).To(HaveLen(1))
			g.Expect(c.Rules.AdditionalLabels).To(BeEmpty())
		}},
		{name: "the watch filter is one of the rules", args: []string{"--watch-filter=blue"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.WatchFilter).To(Equal("blue"))
		}},
		{name: "the management cluster has a namespace and a name", args: []string{"--management-cluster=capi/mgmt"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.ManagementClusterKey).To(Equal(types.NamespacedName{Namespace: "capi", Name: "mgmt"}))
		}},
		{name: "no Cluster is the management cluster", check: func(g Gomega, c *config.Config) {
			g.Expect(c.ManagementClusterKey).To(BeZero())
		}},
		{name: "taint propagation can be found out", args: []string{"--cluster-api-taint-propagation=auto"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.DetectTaintPropagation).To(BeTrue())
			g.Expect(c.Rules.ClusterAPITaints).To(Equal(inherit.PropagationUnknown))
		}},
		{name: "taint propagation can be told to be on", args: []string{"--cluster-api-taint-propagation=enabled"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.DetectTaintPropagation).To(BeFalse())
			g.Expect(c.Rules.ClusterAPITaints).To(Equal(inherit.PropagationEnabled))
		}},
		{name: "taint propagation can be told to be off", args: []string{"--cluster-api-taint-propagation=disabled"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.DetectTaintPropagation).To(BeFalse())
			g.Expect(c.Rules.ClusterAPITaints).To(Equal(inherit.PropagationDisabled))
		}},
		{name: "providers have the groups of Cluster API", check: func(g Gomega, c *config.Config) {
			g.Expect(c.ProviderGroups).To(Equal([]string{"infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"}))
		}},
		{name: "other groups of providers come beside them", args: []string{"--additional-provider-groups=infra.example.com,acme", "--additional-provider-groups=boot.example.com"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.ProviderGroups).To(Equal([]string{"infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "infra.example.com", "acme", "boot.example.com"}))
		}},
		{name: "groups of Cluster API are of providers", args: []string{"--additional-provider-groups=ipam.cluster.x-k8s.io,myk8s.io"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.ProviderGroups).To(ContainElements("ipam.cluster.x-k8s.io", "myk8s.io"))
		}},
		{name: "Nodes of workload clusters are the loop's", check: func(g Gomega, c *config.Config) {
			g.Expect(c.WorkloadAdmission).To(Equal("auto"))
			g.Expect(c.WorkloadWebhookURL).To(BeEmpty())
		}},
		{
			name: "workload clusters may call by URL",
			args: []string{"--workload-admission=webhook", "--workload-webhook-url=https://h.example.com/base/", "--workload-webhook-key-secret=ns/keys"},
			check: func(g Gomega, c *config.Config) {
				g.Expect(c.WorkloadAdmission).To(Equal("webhook"))
				g.Expect(c.WorkloadWebhookURL).To(Equal("https://h.example.com/base"))
				g.Expect(c.WorkloadWebhookKeyName.String()).To(Equal("ns/keys"))
			},
		},
		{name: "taints that evict may come at once", args: []string{"--no-execute-rate=0", "--no-execute=pace", "--no-execute-clusters=100%", "--per-cluster-no-execute=none"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.PaceEviction).To(BeFalse())
		}},
		{name: "Pods may leave first, at any rate", args: []string{"--no-execute=budgets", "--no-execute-deadline=1h", "--no-execute-rate=0"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.NoExecuteLimits.Budgets).To(BeTrue())
			g.Expect(c.NoExecuteDeadline).To(Equal(time.Hour))
			g.Expect(c.Rules.PaceEviction).To(BeTrue(), "no other write adds the taint")
		}},
		{name: "periods of leader election do not matter without leader election", args: []string{"--leader-elect-retry-period=1h"}, check: func(Gomega, *config.Config) {}},
		{name: "a fleet may be observed, and Clusters enrolled one by one", args: []string{"--mode=observe", "--enrollment=labeled"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.Mode).To(Equal(inherit.Observe))
			g.Expect(c.DetectTaintPropagation).To(BeFalse(), "it needs the right to write")
			g.Expect(c.Rules.OnlyLabeled).To(BeTrue())
		}},
		{name: "several namespaces, in any order", args: []string{"--namespace=red,blue", "--namespace=red"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Watched()).To(Equal([]string{"blue", "red"}))
			g.Expect([]bool{c.Watches("red"), c.Watches("green")}).To(Equal([]bool{true, false}))
			same, err := complete(t, "--namespace=blue,red")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.LeaderElectionID()).To(Equal(same.LeaderElectionID()))
		}},
		{name: "the old spelling of an enrollment counts", args: []string{"--enrollment=labelled"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Rules.OnlyLabeled).To(BeTrue())
			g.Expect(c.Enrollment).To(Equal("labeled"))
		}},
		{name: "diagnostics may be insecure", args: []string{"--diagnostics-address=127.0.0.1:8080", "--insecure-diagnostics"}, check: func(g Gomega, c *config.Config) {
			g.Expect(c.Metrics.SecureServing).To(BeFalse())
			g.Expect(c.Metrics.BindAddress).To(Equal("127.0.0.1:8080"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := complete(t, tc.args...)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			tc.check(NewWithT(t), c)
		})
	}
}

// The error of a bad flag names the flag.
func TestBadFlags(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{args: []string{"--additional-sync-machine-labels=(", "--additional-sync-machine-labels=ok"}, want: []string{"--additional-sync-machine-labels", "missing closing )"}},
		{args: []string{"--additional-sync-machine-annotations=["}, want: []string{"--additional-sync-machine-annotations"}},
		{args: []string{"--cluster-api-taint-propagation=maybe"}, want: []string{`--cluster-api-taint-propagation="maybe": must be auto, enabled or disabled`}},
		{args: []string{"--cluster-api-taint-propagation="}, want: []string{"--cluster-api-taint-propagation"}},
		{args: []string{"--cluster-api-taint-propagation=unknown"}, want: []string{"--cluster-api-taint-propagation"}},
		{args: []string{"--management-cluster=mgmt"}, want: []string{`--management-cluster="mgmt": must be <namespace>/<name> or empty`}},
		{args: []string{"--management-cluster=/mgmt"}, want: []string{"--management-cluster"}},
		{args: []string{"--management-cluster=capi/"}, want: []string{"--management-cluster"}},
		{args: []string{"--management-cluster=a/b/c"}, want: []string{"--management-cluster"}},
		{args: []string{"--management-cluster=A_B/c d"}, want: []string{"--management-cluster"}},
		{args: []string{"--webhook-port=0"}, want: []string{"--webhook-port=0: must be between 1 and 65535"}},
		{args: []string{"--webhook-port=65536"}, want: []string{"--webhook-port=65536"}},
		{args: []string{"--sync-period=0s"}, want: []string{"--sync-period=0s: must be positive"}},
		{args: []string{"--sync-period=-1m"}, want: []string{"--sync-period"}},
		{args: []string{"--shutdown-delay=-1s"}, want: []string{"--shutdown-delay=-1s: must not be negative"}},
		{args: []string{"--leader-elect", "--leader-elect-renew-deadline=15s"}, want: []string{"--leader-elect-renew-deadline", "--leader-elect-lease-duration"}},
		{args: []string{"--leader-elect", "--leader-elect-retry-period=10s"}, want: []string{"--leader-elect-retry-period"}},
		{args: []string{"--leader-elect", "--leader-elect-retry-period=0s"}, want: []string{"--leader-elect-retry-period"}},
		{args: []string{"--watch-filter=a b"}, want: []string{"--watch-filter"}},
		{args: []string{"--namespace=A_B"}, want: []string{"--namespace"}},
		{args: []string{"--additional-provider-groups=Infra.example.com"}, want: []string{`--additional-provider-groups="Infra.example.com"`, "lowercase RFC 1123 subdomain"}},
		{args: []string{"--additional-provider-groups=infra.example.com/v1"}, want: []string{`--additional-provider-groups="infra.example.com/v1"`}},
		{args: []string{"--additional-provider-groups=ok.example.com,*,a b"}, want: []string{`--additional-provider-groups="*"`, `--additional-provider-groups="a b"`}},
		{args: []string{"--additional-provider-groups=ok.example.com,,ok"}, want: []string{`--additional-provider-groups=""`}},
		{args: []string{"--per-cluster-sync-allowed=a,-b"}, want: []string{`--per-cluster-sync-allowed: "-b" is neither a key nor a prefix that ends with *`}},
		{args: []string{"--worker-role=control-plane"}, want: []string{"--worker-role=control-plane: this role is for control planes"}},
		{args: []string{"--worker-role=A"}, want: []string{`--worker-role="A"`}},
		{args: []string{"--node-fact=x"}, want: []string{`--node-fact="x": must be <Kind>.<group>:<field>=<label>`}},
		{args: []string{"--node-fact=Secret.example.com:spec.a=a"}, want: []string{"API group example.com belongs to no known provider"}},
		{args: []string{"--mode=Observe"}, want: []string{`--mode="Observe": must be enforce or observe`}},
		{args: []string{"--enrollment=some"}, want: []string{`--enrollment="some": must be all or labeled`}},
		{args: []string{"--additional-provider-groups=apps,batch"}, want: []string{`groups="apps": this API group belongs to Kubernetes, not to a provider`, `groups="batch": this API group belongs to Kubernetes`}},
		{args: []string{"--additional-provider-groups=rbac.authorization.k8s.io,kueue.x-k8s.io"}, want: []string{`"rbac.authorization.k8s.io": this API group belongs to Kubernetes`, `"kueue.x-k8s.io": this API group belongs to Kubernetes`}},
		{args: []string{"--additional-provider-groups=cluster.x-k8s.io,k8s.io"}, want: []string{`"cluster.x-k8s.io": this API group belongs to Kubernetes`, `"k8s.io": this API group belongs to Kubernetes`}},
		{args: []string{"--workload-clusters=false", "--workload-admission=policy"}, want: []string{"--workload-admission=policy needs --workload-clusters"}},
		{
			args: []string{"--workload-clusters=false", "--workload-webhook-url=https://h", "--workload-webhook-key-secret=a/b"},
			want: []string{"--workload-webhook-url needs --workload-clusters"},
		},
		{args: []string{"--no-execute-rate=-1"}, want: []string{"--no-execute-rate=-1"}},
		{args: []string{"--no-execute=budget"}, want: []string{`--no-execute="budget": must be pace or budgets`}},
		{args: []string{"--no-execute-deadline=-1s"}, want: []string{"--no-execute-deadline=-1s: must not be negative"}},
		{args: []string{"--no-execute-rate=NaN"}, want: []string{"--no-execute-rate"}},
		{args: []string{"--no-execute-rate=+Inf"}, want: []string{"--no-execute-rate"}},
		{args: []string{"--workload-admission=magic"}, want: []string{`--workload-admission="magic": must be auto, none, webhook or policy`}},
		{args: []string{"--workload-admission=webhook"}, want: []string{"--workload-admission=webhook needs --workload-webhook-url"}},
		{args: []string{"--workload-webhook-url=http://h"}, want: []string{"--workload-webhook-url", "--workload-webhook-key-secret"}},
		{args: []string{"--workload-webhook-key-secret=b"}, want: []string{`--workload-webhook-key-secret="b": must be <namespace>/<name>`}},
		{
			args: []string{"--workload-webhook-url=https://h", "--workload-webhook-key-secret=a/b", "--workload-webhook-port=9443", "--webhook-configuration="},
			want: []string{"--workload-webhook-port=9443", "--webhook-configuration"},
		},
		{args: []string{"--management-cluster=auto"}, want: []string{`--management-cluster="auto": must be <namespace>/<name> or empty`}},
		{args: []string{"--clustercache-concurrency=0"}, want: []string{"--clustercache-concurrency"}},
		{args: []string{"--clustercache-client-qps=NaN"}, want: []string{"--clustercache-client-qps"}},
		{args: []string{"--health-addr=9440"}, want: []string{"--health-addr"}},
		{args: []string{"--tls-min-version=SSL3"}, want: []string{"--tls-min-version", "SSL3"}},
		{args: []string{"--tls-cipher-suites=ROT13"}, want: []string{"--tls-cipher-suites", "ROT13"}},
		{args: []string{"--logging-format=xml"}, want: []string{"--logging-format", "xml"}},
		{
			args: []string{"--webhook-port=0", "--sync-period=0s", "--management-cluster=x", "--additional-sync-machine-labels=(", "--additional-sync-machine-labels=[", "--cluster-api-taint-propagation=x"},
			want: []string{"--webhook-port", "--sync-period", "--management-cluster", "missing closing )", "missing closing ]", "--cluster-api-taint-propagation"},
		},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			c, err := complete(t, tc.args...)
			NewWithT(t).Expect(c).To(BeNil())
			for _, want := range tc.want {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
			}
		})
	}
}

// Every flag has a description for operators.
func TestEveryFlagIsDescribed(t *testing.T) {
	fs := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	config.NewOptions().AddFlags(fs)
	fs.VisitAll(func(flag *pflag.Flag) {
		NewWithT(t).Expect(flag.Usage).NotTo(BeEmpty(), flag.Name)
	})
}
