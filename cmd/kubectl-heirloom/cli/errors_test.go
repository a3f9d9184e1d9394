// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

func TestSentence(t *testing.T) {
	machines := schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}
	nodes := schema.GroupResource{Resource: "nodes"}
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{
		Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}}
	nowhere := *refused
	nowhere.Err = &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.example.com", IsNotFound: true}}
	late := *refused
	late.Err = context.DeadlineExceeded
	_, noContext := clientcmd.NewNonInteractiveClientConfig(*api.NewConfig(), "nope", &clientcmd.ConfigOverrides{CurrentContext: "nope"}, nil).ClientConfig()
	missing := apierrors.NewNotFound(machines, "x")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"connection refused": {fmt.Errorf("reading Nodes of fleet/prod: %w", refused),
			"reading Nodes of fleet/prod: https://10.0.0.1:6443 cannot be reached: connection refused"},
		"unknown host": {&nowhere, "https://10.0.0.1:6443 cannot be reached: its name api.example.com is not known"},
		"too late":     {&late, "https://10.0.0.1:6443 cannot be reached: no answer in time"},
		"no such object": {fmt.Errorf("getting Machine fleet/x: %w", missing),
			`getting Machine fleet/x: there is no "x" among the machines.cluster.x-k8s.io of that namespace: -n chooses another`},
		"no such Node": {apierrors.NewNotFound(nodes, "n"), `there is no "n" among the nodes`},
		"no right in a namespace": {apierrors.NewForbidden(machines, "", errors.New(
			`User "jane" cannot list resource "machines" in API group "cluster.x-k8s.io" in the namespace "fleet"`)),
			`user "jane" may not list machines.cluster.x-k8s.io in namespace "fleet": this command needs that right`},
		"no right in the cluster": {apierrors.NewForbidden(machines, "", errors.New(
			`User "jane" cannot list resource "machines" in API group "cluster.x-k8s.io" at the cluster scope`)),
			`user "jane" may not list machines.cluster.x-k8s.io in all namespaces: this command needs that right`},
		"no right for Nodes": {apierrors.NewForbidden(nodes, "n", errors.New(`User "jane" cannot get resource "nodes" in API group "" at the cluster scope`)),
			`user "jane" may not get nodes: this command needs that right`},
		"no right for a path": {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "jane" cannot get path "/openapi/v3"`)),
			`user "jane" may not get /openapi/v3: this command needs that right`},
		"a policy": {apierrors.NewForbidden(machines, "x", errors.New("not today")), `machines.cluster.x-k8s.io "x" is forbidden: not today`},
		"no credentials": {apierrors.NewUnauthorized("who are you"),
			"the API server does not accept your credentials: log in again, or choose another user with --user or --context"},
		"no kubeconfig": {fmt.Errorf("loading the kubeconfig: %w", clientcmd.ErrEmptyConfig),
			"loading the kubeconfig: there is no kubeconfig: --kubeconfig or the variable KUBECONFIG names one"},
		"no such context": {noContext, `context "nope" does not exist: kubectl config get-contexts lists those of the kubeconfig`},
		"no such kind": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "a.b", Kind: "C"}},
			"the API server knows no kind C.a.b; kubectl api-resources lists all that it knows"},
		"no such resource": {&meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Resource: "foos"}},
			`the API server knows no kind "foos"; kubectl api-resources lists all that it knows`},
		"no such type": {errors.New(`finding out what "foo/x" is: the server doesn't have a resource type "foo"`),
			`finding out what "foo/x" is: the API server knows no kind "foo"; kubectl api-resources lists all that it knows`},
		"both forms": {errors.New("there is no need to specify a resource type as a separate argument when passing arguments in resource/name form " +
			"(e.g. 'kubectl-heirloom get resource/<resource_name>' instead of 'kubectl-heirloom get resource resource/<resource_name>'"),
			"write TYPE/NAME or TYPE NAME, not both"},
		"interrupted":       {context.Canceled, "interrupted"},
		"too few arguments": {errors.New("accepts between 1 and 2 arg(s), received 0"), "accepts between 1 and 2 arguments, and got 0: --help says which"},
		"no such command":   {errors.New(`unknown command "x" for "kubectl heirloom"`), `"kubectl heirloom" has no command "x": --help lists those that it has`},
		"no arguments":      {errors.New(`unknown command "x" for "kubectl heirloom check"`), `"kubectl heirloom check" takes no arguments, and got "x"`},
		"no such flag": {errors.New("unknown flag: --x"),
			`unknown flag: --x: --help lists the flags of this command, and "kubectl heirloom options" those of all`},
		"several": {errors.Join(errors.New("a"), errors.Join(missing, missing)),
			"a\n" + `there is no "x" among the machines.cluster.x-k8s.io of that namespace: -n chooses another`},
		"found and failed": {errors.Join(ErrFound, errors.New("a")), "a"},
		"found":            {fmt.Errorf("two: %w", ErrFound), ""},
		"nothing":          {nil, ""},
		"our own":          {errors.New("--color=\"red\": must be auto, always or never"), "--color=\"red\": must be auto, always or never"},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(Sentence(tc.err)).To(Equal(tc.want)) })
	}
}

func TestExitCode(t *testing.T) {
	failed := errors.New("no answer")
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {ErrFound, 1}, {fmt.Errorf("two findings: %w", ErrFound), 1}, {errors.Join(ErrFound, nil), 1},
		{failed, 2}, {errors.Join(ErrFound, failed), 2}, {errors.Join(failed, ErrFound), 2},
	} {
		NewWithT(t).Expect(ExitCode(tc.err)).To(Equal(tc.want), "%v", tc.err)
	}
}
