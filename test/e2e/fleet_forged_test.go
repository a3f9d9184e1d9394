// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// testForged tries what somebody could who has the URL of one cluster and wants to ask about another: the answer is always
// the same, and is counted.
func (f *fleet) testForged() {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	f.Expect(f.red.Client.List(f.ctx, list)).To(Succeed())
	f.Expect(list.Items).To(HaveLen(1))
	genuine := *list.Items[0].Webhooks[0].ClientConfig.URL
	mac := genuine[strings.LastIndex(genuine, "/")+1:]
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	before := f.denied()
	answers := map[string]bool{}
	forged := []string{
		strings.Replace(genuine, "/red/red/", "/blue/blue/", 1),       // another Cluster
		strings.Replace(genuine, "/red/red/", "/nothing/nothing/", 1), // one that does not exist
		strings.Replace(genuine, mac, strings.Repeat("0", len(mac)), 1),
		strings.TrimSuffix(genuine, mac),
	}
	for _, url := range forged {
		response, err := client.Post(url, "application/json", strings.NewReader("{}"))
		f.Expect(err).NotTo(HaveOccurred())
		body, err := io.ReadAll(response.Body)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(response.Body.Close()).To(Succeed())
		f.Expect(response.StatusCode).To(Equal(http.StatusForbidden), url)
		answers[string(body)] = true
	}
	f.Expect(answers).To(HaveLen(1))
	f.Expect(f.denied() - before).To(BeEquivalentTo(len(forged)))
}

// denied returns how many requests of workload clusters were denied so far.
func (f *fleet) denied() int { return f.metric("heirloom_workload_admission_denied_total", "") }

// metric returns the value of a metric with these labels.
func (f *fleet) metric(name, labels string) int {
	response, err := http.Get(f.MetricsURL)
	f.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	f.Expect(err).NotTo(HaveOccurred())
	counted := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name+labels) + ` (\d+)`).FindSubmatch(body)
	f.Expect(counted).NotTo(BeNil(), name)
	n, err := strconv.Atoi(string(counted[1]))
	f.Expect(err).NotTo(HaveOccurred())
	return n
}
