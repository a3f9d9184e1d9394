// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var red = types.NamespacedName{Namespace: "ns", Name: "red"}

// leadsTo returns a kubeconfig for a server, with these credentials.
func leadsTo(server, credentials string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: %s}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, credentials)
}

// secret returns the Secret of red's kubeconfig.
func secret(kubeconfig string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: red.Namespace, Name: "red-kubeconfig"}, Data: map[string][]byte{"value": []byte(kubeconfig)},
	}
}

// A kubeconfig is untrusted text: Heirloom runs no command from it, and its requests have a timeout.
func TestKubeconfigs(t *testing.T) {
	with := func(credentials string) string { return leadsTo("https://red.example.com", credentials) }
	const exec = `exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}`
	for _, tc := range []struct{ name, kubeconfig, problem string }{
		{name: "credentials are used", kubeconfig: with(`{token: "t"}`)},
		{name: "a plugin is refused", kubeconfig: with(`{` + exec + `}`), problem: `user "u" has exec, which is not supported`},
		{name: "also beside credentials", kubeconfig: with(`{token: "t", ` + exec + `}`), problem: `user "u" has exec, which is not supported`},
		{name: "an authentication provider is refused", kubeconfig: with(`{auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}}`), problem: `has auth-provider`},
		{name: "a token out of a file is refused", kubeconfig: with(`{tokenFile: /bin/sh}`), problem: `has tokenFile, which is not supported (use token)`},
		{name: "also beside a token", kubeconfig: with(`{token: "t", tokenFile: /bin/sh}`), problem: `has tokenFile`},
		{name: "so are a certificate and a key", kubeconfig: with(`{client-certificate: /bin/sh, client-key: /bin/sh}`),
			problem: `has client-certificate, which is not supported (use client-certificate-data); user "u" has client-key, which is not supported`},
		{name: "and a CA", kubeconfig: strings.Replace(with(`{token: "t"}`), "insecure-skip-tls-verify: true", "certificate-authority: /bin/sh", 1),
			problem: `cluster "c" has certificate-authority, which is not supported`},
		{name: "and what another context uses", kubeconfig: strings.Replace(with(`{token: "t"}`), "users: [", "users: [{name: v, user: {tokenFile: /bin/sh}}, ", 1),
			problem: `user "v" has tokenFile`},
		{name: "an alias is refused", kubeconfig: with(`&user {token: "t"}`) + "extensions: [{name: e, extension: *user}]", problem: `it is refused: it has an anchor or an alias`},
		{name: "so is an anchor", kubeconfig: with(`&user {token: "t"}`), problem: `it has an anchor or an alias`},
		{name: "a large one is not read", kubeconfig: with(`{token: "t"}`) + strings.Repeat("#", 64<<10), problem: `it has more than 64 KiB`},
		{name: "what is no YAML is an error", kubeconfig: "{", problem: `it cannot be read: `},
		{name: "what is no kubeconfig is an error", kubeconfig: "no: kubeconfig", problem: "reading the kubeconfig in the Secret ns/red-kubeconfig: "},
		{name: "so is an empty Secret", problem: "reading the kubeconfig in the Secret ns/red-kubeconfig: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := secret(tc.kubeconfig)
			if tc.kubeconfig == "" {
				s.Data = nil
			}
			config, err := RESTConfig(t.Context(), fake.NewFakeClient(s), red)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(err).NotTo(MatchError(ContainSubstring("/bin/sh")), "the error does not show the Secret's content")
				Expect(config).To(BeNil())
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Host).To(Equal("https://red.example.com"))
			Expect(config.BearerToken).To(Equal("t"))
			Expect(config.Timeout).To(Equal(10 * time.Second))
		})
	}
}

// The host of a server appears in metrics and messages unchanged, so it must be short and valid.
func TestTheServerOfAKubeconfig(t *testing.T) {
	for server, fine := range map[string]bool{
		"https://red.example.com:6443": true, "https://RED.example.com.": true, "https://10.0.0.1:6443": true, "https://[fd00::1]:6443/a/b": true,
		"10.0.0.1:6443": true, "red": true,
		"https://%FF": false, "https://%0A": false, "https://a_b": false, "https://[fe80::1%25x]": false, "https://": false, "": false,
		"https://" + strings.Repeat("a.", 30<<10) + "a": false, "https://a:" + strings.Repeat("0", 30<<10) + "443": false,
	} {
		_, err := RESTConfig(t.Context(), fake.NewFakeClient(secret(leadsTo(server, "{token: t}"))), red)
		if fine {
			NewWithT(t).Expect(err).NotTo(HaveOccurred(), server)
			continue
		}
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`cluster "c" has a server that is neither a DNS name nor an IP address`)), "%.50s", server)
	}
}

// Ten lists of ten lists, and so on, have a hundred million items: a kubeconfig of a KiB would take the memory for all of them. The YAML
// parser refuses so many aliases by itself, but not thousands, and each may be of a text that fills the kubeconfig.
func TestHugeKubeconfigIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name, of string
		depth    int
	}{
		{name: "of many items", of: "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]", depth: 8},
		{name: "of large items", of: strings.Repeat("x", 30<<10), depth: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var bomb strings.Builder
			_, _ = fmt.Fprintf(&bomb, "%sextensions:\n- {name: many, extension: [%s]}\n- {name: e, extension: &b0 %s}\n",
				leadsTo("https://red.example.com", `{token: "t"}`), strings.TrimSuffix(strings.Repeat("0, ", 500), ", "), tc.of)
			for i := range tc.depth {
				_, _ = fmt.Fprintf(&bomb, "- {name: e, extension: &b%d [%s]}\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*b%d, ", i), 10), ", "))
			}
			_, err := RESTConfig(t.Context(), fake.NewFakeClient(secret(bomb.String())), red)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("it has an anchor or an alias")))
		})
	}
}

// A tenant chooses the names in a kubeconfig. An Event and a log entry name them, with a limited length.
func TestErrorsAboutKubeconfigsAreCut(t *testing.T) {
	users := make([]string, 0, 10)
	for i := range 10 {
		users = append(users, fmt.Sprintf("{name: %d%s, user: {tokenFile: /x, client-key: /y}}", i, strings.Repeat("n", 5000)))
	}
	err := checkKubeconfig([]byte(strings.Replace(leadsTo("https://red.example.com", "{}"), "users: [", "users: ["+strings.Join(users, ", ")+", ", 1)))
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("has client-key"), WithTransform(func(text string) int { return len(text) }, BeNumerically("<", 700)))))
}

func TestAClusterWithoutAKubeconfig(t *testing.T) {
	_, err := RESTConfig(t.Context(), fake.NewFakeClient(), red)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`reading the kubeconfig in the Secret ns/red-kubeconfig: secrets "red-kubeconfig" not found`)))
}
