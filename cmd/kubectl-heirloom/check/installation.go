// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// Webhooks has the names of the chart's webhooks; the chart has the webhook of Nodes only if some API server calls it. Each has the match
// condition "changed", without which API servers call it for every write.
var Webhooks = func() (names []string) { //nolint:gochecknoglobals // a list that nothing changes
	for _, kind := range owners.Table {
		names = append(names, kind.Resource+".heirloom.dev")
	}
	return append(names, webhook.WebhookName, refuser, "topology."+refuser)
}()

// hook is a webhook of Heirloom, with its configuration. The type for mutating webhooks has the fields of both kinds.
type hook struct {
	kind string
	in   metav1.ObjectMeta
	admissionv1.MutatingWebhook
}

// readHooks returns the webhooks of the Heirloom to which the settings belong: several can share a management cluster. If no webhook is in
// a configuration with the name in the settings, it returns all webhooks that are not in a configuration of another Heirloom.
func (c *Checker) readHooks(ctx context.Context) (all []hook, err error) {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		raw, list := &unstructured.UnstructuredList{}, &admissionv1.MutatingWebhookConfigurationList{}
		raw.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind + "List"))
		err := c.Client.List(ctx, raw)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw.UnstructuredContent(), list)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %ss: %w", kind, err)
		}
		for _, in := range list.Items {
			for _, h := range in.Webhooks {
				if slices.Contains(Webhooks, h.Name) {
					all = append(all, hook{kind, in.ObjectMeta, h})
				}
			}
		}
	}
	ours := func(h hook) bool { return h.in.Name == c.Settings.Config.WebhookConfiguration }
	named := slices.ContainsFunc(all, ours)
	return slices.DeleteFunc(all, func(h hook) bool {
		neighbours := slices.ContainsFunc(c.Settings.Others, func(other types.NamespacedName) bool { return other.Name == h.in.Name })
		return !ours(h) && (named || neighbours)
	}), nil
}

// registered finds webhooks that can harm a cluster: a webhook that is missing or is called only once, stops writes if it fails, has a
// longer timeout than the chart allows, or is called for more writes than necessary.
func (c *Checker) registered(context.Context) answer {
	missing := slices.DeleteFunc(slices.Clone(Webhooks), func(name string) bool {
		return name == webhook.WebhookName && c.Settings.Config.ManagementCluster == "" && c.Settings.Config.WorkloadWebhookURL == ""
	})
	r := result(OK, "All %d webhooks are registered.", len(missing))
	release, namespace := "RELEASE", "NAMESPACE"
	for _, h := range c.hooks {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == h.Name })
		release = cmp.Or(h.in.Annotations["meta.helm.sh/release-name"], release)
		namespace = cmp.Or(h.in.Annotations["meta.helm.sh/release-namespace"], namespace)
		mutating, seconds := !strings.HasSuffix(h.Name, refuser), ptr.Deref(h.TimeoutSeconds, 10)
		for should, wrong := range map[string]bool{
			"failurePolicy should be Ignore":        mutating && ptr.Deref(h.FailurePolicy, "") != admissionv1.Ignore, // a chart value for the others
			"reinvocationPolicy should be IfNeeded": mutating && ptr.Deref(h.ReinvocationPolicy, "") != admissionv1.IfNeededReinvocationPolicy,
			"timeoutSeconds should be 2":            seconds > 10 || seconds > 2 && h.Name == webhook.WebhookName, // longer timeouts are a chart value
			"matchConditions should include changed": !slices.ContainsFunc(h.MatchConditions, func(c admissionv1.MatchCondition) bool {
				return c.Name == "changed"
			}),
		} {
			if wrong {
				r.add(Failed, h.Name, "%s %s: %s", h.kind, h.in.Name, should)
			}
		}
	}
	for _, name := range missing {
		r.add(Failed, name, "not registered")
	}
	r.add(OK, "", "to see all differences from the chart: helm get manifest %s -n %s | kubectl diff -f -", release, namespace)
	if r.Status == Failed {
		r.Message = "The registered webhooks differ from the chart."
	}
	return r
}

// certificates verifies the serving certificate as an API server does that calls the webhooks. The dry runs show whether it is really
// served.
func (c *Checker) certificates(ctx context.Context) answer {
	chain, unread := c.serving(ctx)
	r := result(Skipped, "The serving certificate could not be checked.")
	for _, h := range c.hooks {
		verify := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: c.Now}
		if s := h.ClientConfig.Service; s != nil {
			verify.DNSName = s.Name + "." + s.Namespace + ".svc"
		} else if parsed, err := url.Parse(ptr.Deref(h.ClientConfig.URL, "")); err == nil {
			verify.DNSName = parsed.Hostname()
		}
		for _, signer := range chain {
			verify.Intermediates.AddCert(signer)
		}
		if !verify.Roots.AppendCertsFromPEM(h.ClientConfig.CABundle) {
			r.add(Failed, h.Name, "no readable caBundle (with cert-manager: see the log of its cainjector)")
		} else if unread != nil {
			r.add(Unknown, "", "%v (the metric heirloom_webhook_certificate_expiration_timestamp_seconds also shows when it expires)", unread)
		} else if _, err := chain[0].Verify(verify); err != nil {
			r.add(Failed, h.Name, "API servers refuse the serving certificate: %v", err)
		} else {
			r.raise(OK)
		}
	}
	switch r.Status {
	case Failed:
		r.Message = "API servers do not trust the webhooks."
	case OK:
		from, end := chain[0].NotBefore, chain[0].NotAfter
		r.Message = fmt.Sprintf("The serving certificate is valid until %s, and is signed by the registered CA.", end.UTC().Format(time.DateOnly))
		// The alert fires a week before the end. cert-manager and Heirloom renew when a third of the time is left.
		if end.Sub(c.Now) < min(7*24*time.Hour, end.Sub(from)/5) {
			r.add(Warning, "", "its renewal is overdue")
		}
	}
	return r
}

// serving reads the serving certificate and its signers, from Heirloom's own Secret or from the Secret that is mounted into the Pod.
func (c *Checker) serving(ctx context.Context) ([]*x509.Certificate, error) {
	key, secret := c.Settings.Config.WebhookCertName, &corev1.Secret{}
	for _, d := range c.deployments[:min(1, len(c.deployments))] {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Name == "serving-certs" && v.Secret != nil && key.Name == "" {
				key = types.NamespacedName{Namespace: d.Namespace, Name: v.Secret.SecretName}
			}
		}
	}
	if key.Name == "" {
		return nil, errors.New("no Deployment of Heirloom mounts a Secret with the certificate")
	}
	if err := c.Client.Get(ctx, key, secret); err != nil {
		return nil, err
	}
	return cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
}

func (c *Checker) installed(ctx context.Context) answer {
	byURL := !slices.ContainsFunc(c.hooks, func(h hook) bool { return h.ClientConfig.Service != nil })
	switch {
	case len(c.deployments) > 0:
		found := c.running(ctx, &c.deployments[0])
		found.Details = c.Settings.Notes
		return found
	case len(c.hooks) == 0 && c.hooksErr == nil:
		return result(Failed, "Heirloom is not installed: there is neither a Deployment nor a webhook configuration.")
	case byURL:
		return result(Unknown, "There is no Deployment of Heirloom, and no webhook has a Service: if API servers call Heirloom by URL, it runs elsewhere.")
	}
	r := result(Failed, "There is no Deployment of Heirloom, but its webhooks are registered.")
	r.Next = `Use --heirloom-namespace for its namespace, run "helm upgrade" with the same values, or uninstall it: docs/uninstall.md`
	return r
}

// running checks the replicas of a Deployment, and whether a replica leads.
func (c *Checker) running(ctx context.Context, d *appsv1.Deployment) answer {
	config, wanted, has, lease := c.Settings.Config, ptr.Deref(d.Spec.Replicas, 1), d.Status, &coordinationv1.Lease{}
	r := result(Failed, "Deployment %s/%s: %d of %d replicas are available, %d up to date.",
		d.Namespace, d.Name, has.AvailableReplicas, wanted, has.UpdatedReplicas)
	r.Next = fmt.Sprintf("Run: kubectl --namespace %s describe deployments,pods --selector app.kubernetes.io/name=heirloom", d.Namespace)
	switch {
	case has.AvailableReplicas == 0:
		return r
	case has.AvailableReplicas < wanted, has.UpdatedReplicas < wanted, has.ObservedGeneration < d.Generation:
		r.Status = Warning
		return r
	case !config.LeaderElect && c.Settings.Known:
		return result(OK, "%s Leader election is off.", r.Message)
	}
	key := types.NamespacedName{Namespace: cmp.Or(config.LeaderElectNamespace, d.Namespace), Name: config.LeaderElectionID()}
	if err := c.Client.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return result(Unknown, "%s The leader is unknown: %v", r.Message, err)
	}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second + time.Minute // clocks may differ
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")                      // its Pod
	if holder == "" || lease.Spec.RenewTime == nil || c.Now.Sub(lease.Spec.RenewTime.Time) > lasts {
		r.Message += fmt.Sprintf(" No replica leads: Lease %s has no holder or has expired (last holder: %q).", key, holder)
		r.Next = "See docs/runbooks/HeirloomNotLeading.md."
		return r
	}
	return result(OK, "%s %s leads.", r.Message, holder)
}

func (c *Checker) versions(context.Context) answer {
	r, kubernetes := result(OK, "Plugin %s", c.Plugin), ""
	if info, err := c.Kubernetes(); err == nil {
		kubernetes = info.GitVersion
	}
	for _, of := range []struct{ what, whose, is, oldest string }{
		{"server", "The server's", c.Settings.Version, "v0.0.0"},
		{"Cluster API", "Cluster API's", c.Settings.ClusterAPI, "v1.11.0"}, // the oldest tested release
		{"Kubernetes", "The API server's", kubernetes, "v1.30.0"},          // where match conditions of webhooks are stable
	} {
		if of.is == "" {
			r.add(Unknown, "", "%s version is unknown", of.whose)
			continue
		}
		r.Message += ", " + of.what + " " + of.is
		if parsed, err := version.ParseGeneric(of.is); err == nil && parsed.LessThan(version.MustParseGeneric(of.oldest)) {
			r.add(Failed, "", "%s is %s, but Heirloom needs %s or later", of.what, of.is, of.oldest)
		}
	}
	if apart := settings.Apart(c.Plugin, c.Settings.Version); apart != "" {
		r.add(Warning, "", "%s", apart)
	}
	r.Message += "."
	return r
}

func (c *Checker) clusterAPI(ctx context.Context) answer {
	managers, err := settings.CoreManagers(ctx, c.Client)
	switch {
	case err != nil:
		return result(Unknown, "Cluster API's Deployments could not be listed: %v", err)
	case len(managers) == 0:
		return result(Unknown, "The Deployment of Cluster API's core manager was not found.")
	case !c.Settings.Known:
		return result(Unknown, "The server's settings are unknown (use --values or --server-flags).")
	}
	ours := c.Settings.Config
	r := result(OK, "Feature gate, flags and watch filter of Cluster API's core manager agree with Heirloom's: MachineTaintPropagation is %s.", c.Settings.Propagation)
	for i := range managers {
		name, manager := managers[i].Namespace+"/"+managers[i].Name, settings.ManagerOf(&managers[i])
		fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
		fs.ParseErrorsAllowlist.UnknownFlags, fs.Usage = true, func() {}
		labels := fs.StringSlice("additional-sync-machine-labels", nil, "")
		annotations := fs.StringSlice("additional-sync-machine-annotations", nil, "")
		filter := fs.String("watch-filter", "", "")
		if err := fs.Parse(slices.Concat(manager.Command, manager.Args)); err != nil {
			r.add(Warning, "", "Deployment %s: its flags cannot be read: %v", name, err)
			continue
		}
		if *filter != ours.WatchFilter {
			r.add(Warning, "", "Deployment %s has --watch-filter=%q, but Heirloom has %q: only one of the two programs handles some objects", name, *filter, ours.WatchFilter)
		}
		for _, synced := range [][2][]string{{*labels, ours.AdditionalSyncMachineLabels}, {*annotations, ours.AdditionalSyncMachineAnnotations}} {
			for _, one := range synced[0] {
				if !slices.Contains(synced[1], one) {
					r.add(Warning, "", "Deployment %s syncs %q, but Heirloom does not: a new Node gets such keys only after it has registered", name, one)
				}
			}
		}
		gate, told := settings.PropagationOf(&managers[i]), ours.Rules.ClusterAPITaints
		switch {
		case ours.DetectTaintPropagation, told == gate:
		case gate == inherit.PropagationDisabled:
			r.add(Failed, "", "Deployment %s turns MachineTaintPropagation off, but Heirloom's setting is on: Cluster API rejects Heirloom's writes", name)
		default:
			r.add(Warning, "", "Deployment %s: MachineTaintPropagation is %s, but Heirloom's setting is %s: typed taints may not be inherited", name, gate, told)
		}
	}
	if r.Status != OK {
		r.Message = "Settings of Cluster API and Heirloom disagree."
	}
	return r
}
