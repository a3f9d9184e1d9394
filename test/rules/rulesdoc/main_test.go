// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/rules"
)

// The table is complete, and each row leads to code. `make verify` compares the page with the table.
func TestRulesAreComplete(t *testing.T) {
	Expect := NewWithT(t).Expect
	code, err := functions("../../../pkg/inherit")
	Expect(err).NotTo(HaveOccurred())
	for i, rule := range append(rules.All(), rules.Capacity()) {
		Expect(rule.Number).To(Equal(i + 1))
		Expect([]string{rule.From, rule.To, rule.Source}).NotTo(ContainElement(""), "rule %d", rule.Number)
		carries := false
		for _, flow := range []rules.Flow{rule.Labels, rule.Annotations, rule.Taints, rule.Fields} {
			carries = carries || flow.Carried
			Expect(flow.Carried || flow.How == "").To(BeTrue(), "rule %d says how it carries what it does not carry", rule.Number)
		}
		Expect(rule.Code == "").To(Equal(!carries), "rule %d: rules that carry entries, and no others, name their code", rule.Number)
		_, err := links(code, rule)
		Expect(err).NotTo(HaveOccurred())
	}
	_, err = links(code, rules.Rule{Number: 1, Code: "Policy.Missing"})
	Expect(err).To(MatchError(`rule 1 names "Policy.Missing" as its code, and there is no such function`))
}
