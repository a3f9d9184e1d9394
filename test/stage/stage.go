// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Namespace is the namespace of the release.
const Namespace = "heirloom-system"

// Home is the name of the management cluster's own Cluster and of its namespace, unless arguments set another.
const Home = "home"

// ServiceAccount is the user of the program. The chart's RBAC grants its rights.
const ServiceAccount = "system:serviceaccount:" + Namespace + ":heirloom"

// Options describes a stage.
type Options struct {
	// Program is the path of the heirloom binary.
	Program string
	// Dir is the directory of logs, kubeconfigs and certificates.
	Dir string
	// Values override the chart values that the stage sets.
	Values map[string]any
	// Args are additional arguments of the program.
	Args []string
	// Host is the program's host in the URLs that API servers call; 127.0.0.1 by default. Heirloom's own certificates need a DNS name.
	Host string
	// Env are additional variables of its environment, each NAME=value.
	Env []string
	// FailClosed makes API servers wait 30 seconds for an answer and refuse a write without an answer, so that a test sees the result of
	// the review in the write itself. Without it, webhooks fail open, as in the chart. Do not combine it with WorkloadWebhook: Heirloom
	// does not register webhooks that fail closed in workload clusters.
	FailClosed bool
	// WorkloadWebhook sets the URL with which workload clusters call the webhooks.
	WorkloadWebhook bool
	// WithoutWebhooks omits the webhook configurations, so that only the loop acts.
	WithoutWebhooks bool
	// WithoutLoop prevents the program from becoming the leader, so that only the webhooks act.
	WithoutLoop bool
	// On is a running control plane, which Stop leaves running. Nil: the stage starts its own.
	On *controlplane.ControlPlane
	// WithoutProgram does not start the program; the test calls StartHeirloom later.
	WithoutProgram bool
	// ControlPlane are options of the control plane; CRDs default to Cluster API's. The CRDs of the test's providers, see
	// controlplane.ProviderCRDPath, are always added.
	ControlPlane controlplane.Options
}

// Stage is a control plane with Heirloom on it.
type Stage struct {
	*controlplane.ControlPlane
	// Client has the rights of an administrator.
	Client client.Client
	// program is the stage's process of Heirloom; StartReplica starts more.
	*program

	options Options
}

// New sets up a stage.
func New(ctx context.Context, options Options) (*Stage, error) {
	s := &Stage{ControlPlane: options.On, options: options}
	if s.ControlPlane == nil {
		ofPlane, err := ControlPlaneOptions(ctx, options.ControlPlane)
		if err != nil {
			return nil, err
		}
		ofPlane.LogDir = options.Dir
		if s.ControlPlane, err = controlplane.Start(ctx, ofPlane); err != nil {
			return nil, err
		}
	}
	if err := s.set(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// ControlPlaneOptions returns options with the CRDs that a stage needs: Cluster API's, unless the options have CRDs, and the CRDs
// of the test's providers.
func ControlPlaneOptions(ctx context.Context, options controlplane.Options) (controlplane.Options, error) {
	if len(options.CRDPaths) == 0 {
		var err error
		if options.CRDPaths, err = controlplane.CAPICRDPaths(); err != nil {
			return options, err
		}
	}
	providers, err := controlplane.ProviderCRDPath(ctx)
	options.CRDPaths = append(slices.Clip(options.CRDPaths), providers)
	return options, err
}

func (s *Stage) set(ctx context.Context) error {
	var err error
	if s.Client, err = client.New(s.AdminConfig(), client.Options{Scheme: Scheme()}); err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	if err := s.prepareProgram(); err != nil {
		return err
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	if err := s.setLease(ctx); err != nil {
		return err
	}
	if s.options.WithoutProgram {
		return nil
	}
	return s.StartHeirloom(ctx)
}

// Scheme returns a scheme with the types of Kubernetes and of Cluster API.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types with the same name: a fault of the build
		}
	}
	return scheme
}

// prepareProgram writes the kubeconfig of the ServiceAccount and chooses the program's ports.
func (s *Stage) prepareProgram() error {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace}
	if err := s.WriteKubeconfig(s.kubeconfig(), ServiceAccount, groups...); err != nil {
		return err
	}
	var err error
	s.program, err = s.newProgram("heirloom", s.options.Args)
	return err
}

func (s *Stage) kubeconfig() string {
	return filepath.Join(s.options.Dir, "heirloom.kubeconfig")
}

// install applies the objects that the chart renders for a program outside of the cluster.
func (s *Stage) install(ctx context.Context) error {
	namespaces := []string{Namespace}
	if watched, ok := s.options.Values["watchNamespace"].(string); ok && watched != "" {
		namespaces = append(namespaces, strings.Split(watched, ",")...) // the chart puts a Role there
	}
	for _, name := range namespaces {
		err := s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	ca, err := controlplane.ServingCertificate(s.options.Dir, cmp.Or(s.options.Host, "127.0.0.1"))
	if err != nil {
		return err
	}
	values := map[string]any{
		"deployment":        map[string]any{"enabled": false},
		"webhooks":          map[string]any{"url": s.WebhookURL},
		"managementCluster": Home + "/" + Home,
		"certificates": map[string]any{
			"mode":     "provided",
			"provided": map[string]any{"caBundle": base64.StdEncoding.EncodeToString(ca)},
		},
	}
	if s.options.WorkloadWebhook {
		values["workloadClusters"] = map[string]any{"webhookURL": s.WorkloadURL}
	}
	for key, value := range s.options.Values {
		values[key] = value
	}
	root, err := controlplane.RepositoryRoot(ctx)
	if err != nil {
		return err
	}
	chart := filepath.Join(root, "deploy", "chart", "heirloom")
	objects, err := controlplane.RenderChart(ctx, chart, controlplane.ChartOptions{Namespace: Namespace, Values: values})
	if err != nil {
		return err
	}
	if s.options.WithoutWebhooks {
		objects = slices.DeleteFunc(objects, func(object unstructured.Unstructured) bool {
			return object.GroupVersionKind().Group == "admissionregistration.k8s.io"
		})
	}
	if s.options.FailClosed {
		for _, object := range objects {
			failClosed(object)
		}
	}
	return controlplane.Apply(ctx, s.Client, objects)
}

// failClosed changes all webhooks in an object, see Options.FailClosed. The chart has no values for these fields.
func failClosed(object unstructured.Unstructured) {
	hooks, _ := object.Object["webhooks"].([]any)
	for _, hook := range hooks {
		if hook, ok := hook.(map[string]any); ok {
			hook["failurePolicy"], hook["timeoutSeconds"] = "Fail", int64(30)
		}
	}
}

// Dir returns the directory of the program's certificate and log.
func (s *Stage) Dir() string {
	return s.options.Dir
}

// Stop stops the program and the control plane, unless Options.On gave the control plane.
func (s *Stage) Stop() error {
	err := s.StopHeirloom()
	if s.options.On != nil {
		return err
	}
	return errors.Join(err, s.ControlPlane.Stop())
}
