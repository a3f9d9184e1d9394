// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"

	"github.com/heirloom-dev/heirloom/pkg/version"
)

// SARIF writes the report in the format of code scanning, version 2.1.0
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
func (r *Report) SARIF(w io.Writer) error {
	one := run{Results: make([]result, 0, len(r.Findings))}
	one.Tool.Driver = driver{Name: "kubectl heirloom lint", InformationURI: docsOfRules, Version: version.String()}
	for _, rule := range Rules() {
		one.Tool.Driver.Rules = append(one.Tool.Driver.Rules, descriptor{
			ID: rule.ID, Name: rule.Name, ShortDescription: text{rule.Finds}, HelpURI: docsOfRules, DefaultConfiguration: level{rule.Severity},
		})
	}
	for _, f := range r.Findings {
		one.Results = append(one.Results, f.result())
	}
	log := sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []run{one}}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(log); err != nil {
		return fmt.Errorf("writing SARIF: %w", err)
	}
	return nil
}

func (f Finding) result() result {
	said := f.Message
	if f.Advice != "" {
		said += ". " + f.Advice
	}
	at := location{PhysicalLocation: physicalLocation{ArtifactLocation: artifactLocation{f.uri()}}}
	if f.Line > 0 {
		at.PhysicalLocation.Region = &region{f.Line}
	}
	if f.Object != "" {
		at.LogicalLocations = []logicalLocation{{FullyQualifiedName: f.Object + " " + f.Field, Kind: "member"}}
		said = f.Object + ": " + said
	}
	// The same finding stays the same if lines above it change.
	sum := sha256.Sum256([]byte(f.Rule + "\x00" + f.File + "\x00" + f.Object + "\x00" + f.Field + "\x00" + f.Message))
	return result{
		RuleID: f.Rule, Level: f.Severity, Message: text{said}, Locations: []location{at},
		RuleIndex:           slices.IndexFunc(Rules(), func(rule Rule) bool { return rule.ID == f.Rule }),
		PartialFingerprints: map[string]string{"heirloomFinding/v1": hex.EncodeToString(sum[:16])},
	}
}

// uri is the file's name as a URI: relative, unless the name is not.
func (f Finding) uri() string {
	u := url.URL{Path: f.File}
	if path.IsAbs(f.File) {
		u.Scheme = "file"
	}
	return u.String()
}

// What SARIF calls things. Its levels are called as severities are here.
type (
	sarifLog struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}
	run struct {
		Tool struct {
			Driver driver `json:"driver"`
		} `json:"tool"`
		Results []result `json:"results"`
	}
	driver struct {
		Name           string       `json:"name"`
		Version        string       `json:"version"`
		InformationURI string       `json:"informationUri"`
		Rules          []descriptor `json:"rules"`
	}
	descriptor struct {
		ID                   string `json:"id"`
		Name                 string `json:"name"`
		ShortDescription     text   `json:"shortDescription"`
		HelpURI              string `json:"helpUri"`
		DefaultConfiguration level  `json:"defaultConfiguration"`
	}
	result struct {
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               Severity          `json:"level"`
		Message             text              `json:"message"`
		Locations           []location        `json:"locations"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	location struct {
		PhysicalLocation physicalLocation  `json:"physicalLocation"`
		LogicalLocations []logicalLocation `json:"logicalLocations,omitempty"`
	}
	physicalLocation struct {
		ArtifactLocation artifactLocation `json:"artifactLocation"`
		Region           *region          `json:"region,omitempty"`
	}
	artifactLocation struct {
		URI string `json:"uri"`
	}
	region struct {
		StartLine int `json:"startLine"`
	}
	logicalLocation struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
	text struct {
		Text string `json:"text"`
	}
	level struct {
		Level Severity `json:"level"`
	}
)
