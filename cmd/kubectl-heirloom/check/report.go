// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is what a check found.
type Status string

// The statuses.
const (
	// OK means that all is as it should be.
	OK Status = "ok"
	// Warning means that something deserves a look, and may be meant.
	Warning Status = "warning"
	// Failed means that something is wrong.
	Failed Status = "failed"
	// Unknown means that the check could not find out.
	Unknown Status = "unknown"
	// Skipped means that there is nothing to check.
	Skipped Status = "skipped"
)

// Result is what one check found.
type Result struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Details are single findings.
	Details []string `json:"details,omitempty"`
	// Next is what to do about it.
	Next string `json:"next,omitempty"`
}

// Report is the answer of the command.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Checks          []Result `json:"checks"`
}

// Has reports whether a check has this status.
func (r *Report) Has(status Status) bool { return r.count(status) > 0 }

// Answered reports whether at least one check found something out.
func (r *Report) Answered() bool {
	return slices.ContainsFunc(r.Checks, func(one Result) bool { return one.Status != Unknown && one.Status != Skipped })
}

func (r *Report) count(status Status) int {
	count := 0
	for _, one := range r.Checks {
		if one.Status == status {
			count++
		}
	}
	return count
}

// Table implements cli.Result.
func (r *Report) Table(wide bool) *metav1.Table {
	t := &metav1.Table{}
	columns := []string{"Check", "Status", "Message"}
	if wide {
		columns = append(columns, "Next")
	}
	for _, name := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, one := range r.Checks {
		cells := []any{one.Name, string(one.Status), one.Message, one.Next}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells[:len(columns)]})
	}
	return t
}

func ok(format string, args ...any) Result { return result(OK, format, args...) }

func warning(format string, args ...any) Result { return result(Warning, format, args...) }

func failed(format string, args ...any) Result { return result(Failed, format, args...) }

func unknown(format string, args ...any) Result { return result(Unknown, format, args...) }

func skipped(message string) Result { return Result{Status: Skipped, Message: message} }

func result(status Status, format string, args ...any) Result {
	return Result{Status: status, Message: fmt.Sprintf(format, args...)}
}

// pages is where people read the repository's directory docs.
const pages = "https://github.com/heirloom-dev/heirloom/blob/main/docs/"

// next returns the result with what to do about it. A page is named as in the repository.
func (r Result) next(format string, args ...any) Result {
	r.Next = strings.ReplaceAll(fmt.Sprintf(format, args...), "docs/", pages)
	return r
}

// with returns the result with further details.
func (r Result) with(details ...string) Result {
	r.Details = slices.Concat(r.Details, details)
	return r
}
