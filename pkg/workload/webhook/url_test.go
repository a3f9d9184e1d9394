// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

func TestBaseURL(t *testing.T) {
	for _, tc := range []struct{ name, raw, want, problem string }{
		{name: "a host is enough", raw: "https://heirloom.example.com", want: "https://heirloom.example.com"},
		{name: "a port and a path may be there", raw: "https://heirloom.example.com:8443/base/path", want: "https://heirloom.example.com:8443/base/path"},
		{name: "a slash at the end is dropped", raw: "https://heirloom.example.com/", want: "https://heirloom.example.com"},
		{name: "a slash at the end of a path is, too", raw: "https://heirloom.example.com/base/", want: "https://heirloom.example.com/base"},
		{name: "an address will do", raw: "https://[2001:db8::1]:443", want: "https://[2001:db8::1]:443"},

		{name: "plain HTTP is refused", raw: "http://heirloom.example.com", problem: "must be https://"},
		{name: "a host without a scheme is refused", raw: "heirloom.example.com", problem: "must be https://"},
		{name: "a URL without a host is refused", raw: "https:///base", problem: "must be https://"},
		{name: "a URL without slashes is refused", raw: "https:heirloom.example.com", problem: "must be https://"},
		{name: "a port without a host is refused", raw: "https://:8443", problem: "must be https://"},
		{name: "a user is refused", raw: "https://me@heirloom.example.com", problem: "no user"},
		{name: "a query is refused", raw: "https://heirloom.example.com?a=b", problem: "no query"},
		{name: "an empty query is refused", raw: "https://heirloom.example.com?", problem: "no query"},
		{name: "a fragment is refused", raw: "https://heirloom.example.com#a", problem: "no fragment"},
		{name: "an empty fragment is refused", raw: "https://heirloom.example.com#", problem: "no fragment"},
		{name: "port 0 is refused", raw: "https://heirloom.example.com:0", problem: "a port between"},
		{name: "a port too high is refused", raw: "https://heirloom.example.com:65536", problem: "a port between"},
		{name: "a colon without a port is refused", raw: "https://heirloom.example.com:", problem: "a port between"},
		{name: "a port that is a word is refused", raw: "https://heirloom.example.com:https", problem: "must be a URL"},
		{name: "two slashes are refused", raw: "https://heirloom.example.com//", problem: "plain path"},
		{name: "a way up is refused", raw: "https://heirloom.example.com/a/../b", problem: "plain path"},
		{name: "an escape is refused", raw: "https://heirloom.example.com/a%2Fb", problem: "plain path"},
		{name: "nothing is refused", raw: "", problem: "must be https://"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			base, err := BaseURL(tc.raw)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(base).To(BeEmpty())
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(base).To(Equal(tc.want))
			Expect(webhook.ValidateWebhookURL(field.NewPath("url"), base+Path(key(1), prod), true)).To(BeEmpty(), "an API server takes it")
		})
	}
}
