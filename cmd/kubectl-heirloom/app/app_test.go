// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
)

func TestPrint(t *testing.T) {
	e := &origin.Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Explanation"},
		Entries: []origin.Entry{
			{Kind: origin.Label, Key: "team", Value: "ml", From: "up there", Inherited: true, OwnedByHeirloom: true},
			{Kind: origin.Annotation, Key: "long", Value: strings.Repeat("é", 60), From: "set here by heirloom", OwnedByHeirloom: true},
		},
		Notes: []string{"Mind the gap."},
	}
	for format, want := range map[string]string{
		"": "KIND         KEY    VALUE                                              FROM\n" +
			"label        team   ml                                                 up there (owned by heirloom)\n" +
			"annotation   long   " + strings.Repeat("é", 47) + "…   set here by heirloom\n" +
			"Note: Mind the gap.\n",
		"json": `"value": "` + strings.Repeat("é", 60) + `"`,
		"yaml": "notes:\n- Mind the gap.\n",
	} {
		t.Run("format "+format, func(t *testing.T) {
			show, err := printerFor(format)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetOut(&out)
			command.SetErr(&out)
			if err := show(command, e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), want) {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}

func TestWrongFlagsAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, flag := range []string{"--output=wide", "--management-cluster=mgmt", "--management-cluster=a/b/c"} {
		command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		command.SetArgs([]string{"explain", "node/n", flag, "--server=https://127.0.0.1:1"})
		command.SetOut(&bytes.Buffer{})
		command.SetErr(&bytes.Buffer{})
		name, _, _ := strings.Cut(flag, "=")
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
