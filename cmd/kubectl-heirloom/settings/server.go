// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// Labels of the chart's Deployment.
const (
	nameLabel      = "app.kubernetes.io/name"
	partOfLabel    = "app.kubernetes.io/part-of"
	componentLabel = "app.kubernetes.io/component"
	versionLabel   = "app.kubernetes.io/version"

	heirloom  = "heirloom"
	component = "manager"
	// usual is the namespace in which Heirloom is usually installed.
	usual = "heirloom-system"
)

// running returns the settings of the running server.
func (f *Flags) running(ctx context.Context, reader client.Reader) (Settings, error) {
	found, err := Deployments(ctx, reader, f.Namespace)
	if len(found) > 0 {
		return Of(found), nil
	}
	why := "Heirloom has no Deployment in this cluster"
	switch {
	case apierrors.IsForbidden(err):
		why = "you may not list Deployments"
	case err != nil:
		return Settings{}, fmt.Errorf("looking for Heirloom's Deployment: %w", err)
	case f.Namespace != "":
		why = "there is no Heirloom in namespace " + f.Namespace
	}
	s, err := (&Flags{}).fromFlags()
	s.Origin = "the defaults"
	s.note("The server's settings are unknown, because %s, so the defaults are assumed (use --values, --server-flags or --heirloom-namespace).", why)
	return s, err
}

// Deployments returns Heirloom's Deployments in the namespace. Without a namespace, it returns the Deployments of all namespaces or, if you
// may not list them, of the usual namespace. The settings come from the first Deployment.
func Deployments(ctx context.Context, reader client.Reader, namespace string) ([]appsv1.Deployment, error) {
	found, err := deployments(ctx, reader, namespace, usual, client.MatchingLabels{componentLabel: component})
	return slices.DeleteFunc(found, func(d appsv1.Deployment) bool {
		return d.Labels[partOfLabel] != heirloom && d.Labels[nameLabel] != heirloom // commonLabels may replace the first
	}), err
}

// deployments lists Deployments in the namespace. Without a namespace, it lists all namespaces or, if this is forbidden, the usual
// namespace.
func deployments(ctx context.Context, reader client.Reader, namespace, usual string, labels client.MatchingLabels) ([]appsv1.Deployment, error) {
	list := &appsv1.DeploymentList{}
	err := reader.List(ctx, list, labels, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) && namespace == "" {
		if inUsual := reader.List(ctx, list, labels, client.InNamespace(usual)); inUsual == nil && len(list.Items) > 0 {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b appsv1.Deployment) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// Of returns the settings of the first Deployment, with notes about the others.
func Of(found []appsv1.Deployment) Settings {
	d := found[0]
	manager := ManagerOf(&d)
	s := Settings{Known: true, Deployment: client.ObjectKeyFromObject(&d), Version: versionOf(manager.Image, d.Labels[versionLabel])}
	s.Origin = "Deployment " + s.Deployment.String()
	var others []string
	for _, other := range found[1:] {
		s.Others = append(s.Others, client.ObjectKeyFromObject(&other))
		others = append(others, client.ObjectKeyFromObject(&other).String())
	}
	if len(others) > 0 {
		s.note("Found several Heirlooms; this answer is for %s (others: %s; use --heirloom-namespace).",
			s.Deployment, strings.Join(others, ", "))
	}
	if apart := Apart(version.String(), s.Version); apart != "" {
		s.note("%s", apart)
	}
	arguments := slices.Concat(manager.Command[min(1, len(manager.Command)):], manager.Args)
	fs := s.parse(arguments)
	// The Pod finds its own namespace, and the chart gives the webhook configurations the name of the Deployment.
	s.Config.LeaderElectNamespace = cmp.Or(s.Config.LeaderElectNamespace, d.Namespace)
	if !fs.Changed("webhook-configuration") {
		s.Config.WebhookConfiguration = d.Name
	}
	if strings.Contains(strings.Join(arguments, " "), "$(") {
		s.note("The server's flags use environment variables, which this plugin does not resolve (use --values or --server-flags).")
	}
	return s
}

// flagsOfServer reads the server's flags with the server's own code.
func flagsOfServer(arguments []string) (*config.Config, *pflag.FlagSet, error) {
	options, fs := config.NewOptions(), pflag.NewFlagSet(heirloom, pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.Usage = func() {}
	options.AddFlags(fs)
	if err := fs.Parse(arguments); err != nil {
		return nil, fs, err
	}
	complete, err := options.Complete()
	return complete, fs, err
}

// parse reads the arguments of a running server. The plugin may be of another release, so parse drops flags that it does not understand,
// and notes them.
func (s *Settings) parse(arguments []string) (fs *pflag.FlagSet) {
	var flags [][]string // each flag with its value, which may be the next argument
	for _, argument := range arguments {
		if strings.HasPrefix(argument, "-") || len(flags) == 0 {
			flags = append(flags, nil)
		}
		flags[len(flags)-1] = append(flags[len(flags)-1], argument)
	}
	var known []string
	s.Config, fs, _ = flagsOfServer(nil)     // the defaults are valid
	for before := -1; before < len(known); { // a flag may be valid only with another flag
		before = len(known)
		flags = slices.DeleteFunc(flags, func(flag []string) bool {
			complete, parsed, err := flagsOfServer(slices.Concat(known, flag))
			if err == nil {
				known, s.Config, fs = append(known, flag...), complete, parsed
			}
			return err == nil
		})
	}
	var refused []string
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag[0], "=")
		refused = append(refused, name)
	}
	if len(refused) > 0 {
		s.note("This plugin does not know flags %s of the server, or their values, and assumes the defaults: use the plugin of the server's "+
			"release, or --values or --server-flags.", strings.Join(refused, ", "))
	}
	return fs
}

// HandlesAll reports whether a Heirloom handles the objects of all namespaces and watch filters.
func HandlesAll(d *appsv1.Deployment) bool {
	config := Of([]appsv1.Deployment{*d}).Config
	return len(config.Namespaces) == 0 && config.WatchFilter == ""
}

// ManagerOf returns the manager's container in a Deployment.
func ManagerOf(d *appsv1.Deployment) corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return corev1.Container{}
	}
	return containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == component }))]
}

// versionOf returns the version of an image: its tag or, if the tag is no version, a label's.
func versionOf(image, label string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	for _, candidate := range []string{tag, label} {
		if _, err := utilversion.ParseSemantic(candidate); err == nil {
			return candidate
		}
	}
	return cmp.Or(tag, label)
}

// Apart returns a sentence if the plugin is of another minor release than the server, and "" otherwise. Builds that are no release do not
// count.
func Apart(plugin, server string) string {
	ours, err := utilversion.ParseSemantic(plugin)
	theirs, wrong := utilversion.ParseSemantic(server)
	if err != nil || wrong != nil || ours.PreRelease()+theirs.PreRelease() != "" || ours.Major() == theirs.Major() && ours.Minor() == theirs.Minor() {
		return ""
	}
	return fmt.Sprintf("The versions of plugin (%s) and server (%s) differ: use the plugin of the server's release.", plugin, server)
}
