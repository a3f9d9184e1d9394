// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestWrongFlagsAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, flag := range []string{"--output=wild", "--management-cluster=mgmt", "--management-cluster=a/b/c"} {
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
