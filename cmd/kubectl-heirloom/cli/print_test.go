// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// answer is a command's answer. Its table has a value with its own colours, as an annotation may have, and cells with the plugin's colours.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Items           []string `json:"items"`
}

func (answer) Names() []string { return []string{"machine.cluster.x-k8s.io/a", "node/b"} }

func (a answer) Table(wide bool) *metav1.Table {
	t := &metav1.Table{Rows: []metav1.TableRow{
		{Cells: []any{"a\x1b[31mb", Cell{Bad, "\x1b]0;differs\x1b[0m"}, "ä"}}, {Cells: []any{"ö", Cell{Good, "as declared"}, Cell{Dim, "x y"}}},
	}}
	names := map[bool][]string{false: {"Value", "The State"}, true: {"Value", "The State", "From"}}[wide]
	for _, name := range names {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	return t
}

// printed returns the output of a command with this --output.
func printed(t *testing.T, paint Painter, output string) (string, error) {
	t.Helper()
	flags, command := NewPrintFlags("own"), &cobra.Command{}
	flags.AddFlags(command)
	NewWithT(t).Expect(command.ParseFlags([]string{"--output=" + output})).To(Succeed())
	if err := flags.Validate(); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err := flags.Print(&out, paint, &answer{metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Answer"}, []string{"x", "y"}})
	return out.String(), err
}

// Colours in a value are escaped, and the plugin's own colours do not change the columns.
func TestPrint(t *testing.T) {
	const (
		wide   = "VALUE      THE STATE           FROM\na^[[31mb   ^[]0;differs^[[0m   ä\nö          as declared         x y\n"
		narrow = "VALUE      THE STATE\na^[[31mb   ^[]0;differs^[[0m\nö          as declared\n"
		colour = "VALUE      THE STATE           FROM\na^[[31mb   \x1b[31m^[]0;differs^[[0m\x1b[0m   ä\nö          \x1b[32mas declared\x1b[0m         \x1b[2mx y\x1b[0m\n"
	)
	for _, tc := range []struct {
		output string
		paint  Painter
		want   string
	}{
		{"", false, narrow}, {"table", false, narrow}, {"wide", false, wide}, {"wide", true, colour},
		{"name", true, "machine.cluster.x-k8s.io/a\nnode/b\n"},
		{"yaml", true, "apiVersion: cli.heirloom.dev/v1alpha1\nitems:\n- x\n- \"y\"\nkind: Answer\n"},
		{`jsonpath={.items[*]}{"\n"}`, true, "x y\n"}, {"go-template={{.kind}}", true, "Answer"},
	} {
		out, err := printed(t, tc.paint, tc.output)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(out).To(Equal(tc.want), "%s %v", tc.output, tc.paint)
	}
	for output, says := range map[string]string{
		"xml": `--output="xml": must be one of table, wide, json, yaml, kyaml, name, go-template, go-template-file, template, templatefile, ` +
			`jsonpath, jsonpath-as-json, jsonpath-file, own`,
		"jsonpath={": `--output="jsonpath={": error parsing jsonpath {, unclosed action`,
	} {
		_, err := printed(t, false, output)
		NewWithT(t).Expect(err).To(MatchError(says))
	}
	NewWithT(t).Expect(printTable(&bytes.Buffer{}, true, &metav1.Table{})).To(Succeed())
}

func TestPaint(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(Painter(true).Paint(Bad, "a\x1b[0mb")).To(Equal("\x1b[31ma^[[0mb\x1b[0m"))
	Expect(Painter(false).Paint(Bad, "a\x1b[0mb")).To(Equal("a^[[0mb"))
	for color, want := range map[string]Painter{"always": true, "never": false, "auto": false} { // no terminal
		Expect((&Factory{Color: color}).Painter(&bytes.Buffer{})).To(Equal(want), color)
	}
}

func TestSentence(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{
		Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}}
	late := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api", Err: context.DeadlineExceeded}
	missing := apierrors.NewNotFound(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}, "x")
	for name, tc := range map[string]struct {
		err  error
		want string
		code int
	}{
		"nothing":                               {nil, "", 0},
		"found":                                 {fmt.Errorf("two: %w", ErrFound), "", 1},
		"found, and another error that is none": {errors.Join(ErrFound, nil), "", 1},
		"found and failed":                      {errors.Join(ErrFound, errors.New("a")), "a", 2},
		"failed and found":                      {errors.Join(errors.New("a"), errors.Join(errors.New("a"), ErrFound)), "a", 2},
		"connection refused": {fmt.Errorf("reading Nodes of Cluster fleet/prod: %w", refused),
			"reading Nodes of Cluster fleet/prod: The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?", 2},
		"too late":     {late, "Unable to connect to the server: context deadline exceeded", 2},
		"interrupted":  {fmt.Errorf("listing: %w", context.Canceled), "interrupted", 2},
		"several":      {errors.Join(errors.New("a"), errors.Join(missing, missing)), "a\n" + `machines.cluster.x-k8s.io "x" not found`, 2},
		"not found":    {NotFound("Cluster", types.NamespacedName{Namespace: "fleet", Name: "x"}), `Cluster "x" not found in namespace "fleet" (use -n)`, 2},
		"no such Node": {NotFound("Node", types.NamespacedName{Name: "x"}), `Node "x" not found`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Sentence(tc.err)).To(Equal(tc.want))
			NewWithT(t).Expect(ExitCode(tc.err)).To(Equal(tc.code))
		})
	}
}
