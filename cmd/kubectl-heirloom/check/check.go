// SPDX-License-Identifier: Apache-2.0

// Package check finds out whether Heirloom is installed and works: a list of checks. A check that has no rights or gets no answer says so,
// and does not stop the others.
package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

// Checker runs the checks. World has the objects of the management cluster and the server's settings; Client makes dry runs there.
// Kubernetes returns the API server's version, Plugin is the version of this program. Namespace is the namespace of Heirloom; empty for
// any.
type Checker struct {
	compare.World
	Client            client.Client
	Kubernetes        func() (*version.Info, error)
	Namespace, Plugin string

	// Objects that several checks use, and the errors of their reads. Of the Deployments, the check "installed" judges the first.
	deployments                        []appsv1.Deployment
	hooks                              []hook
	trees                              []*compare.Tree
	deploymentsErr, hooksErr, treesErr error
}

// check is a check: its name, the advice for a finding, the error that prevents it, and its function.
type check struct {
	name, next string
	unread     error
	run        func(context.Context) answer
}

// checks returns all checks, in the order in which they are reported.
func (c *Checker) checks() []check {
	const uncalled = "See docs/runbooks/HeirloomWebhooksNotCalled.md."
	return []check{
		{"installed", "Install it: docs/getting-started.md#install", c.deploymentsErr, c.installed},
		{"mode", "Upgrade with mode=enforce, and with enrollment=labeled if only labeled Clusters should be written: docs/try-it-safely.md", c.treesErr, c.mode},
		{"versions", "Use compatible releases: docs/support.md", nil, c.versions},
		{"registered", `Run "helm upgrade" with the same values. If the problem returns, find out who changes the configurations.`, c.hooksErr, c.registered},
		{"certificates", "See docs/runbooks/HeirloomCertificateExpiring.md.", c.hooksErr, c.certificates},
		{"mutation", uncalled, c.treesErr, c.mutation},
		{"validation", uncalled, nil, c.validation},
		{"cluster-api", "Use the same values for both, and set clusterAPITaintPropagation=auto: docs/configuration.md", nil, c.clusterAPI},
		{"workload-clusters", `If Heirloom's log says "Connect failed": docs/runbooks/HeirloomWorkloadClusterDisconnected.md`, c.treesErr, c.workloadClusters},
		{"nodes", "See docs/runbooks/HeirloomNodesUnprotected.md and docs/troubleshooting.md.", c.treesErr, c.nodes},
		{"machines", "If this is not intended, unpause the objects, or remove the label heirloom.dev/ignore.", c.treesErr, c.machines},
		{"others", "See docs/runbooks/HeirloomDrift.md.", c.treesErr, c.others},
	}
}

// Run runs all checks.
func (c *Checker) Run(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // there may be many Clusters that do not answer
	defer cancel()
	c.deployments, c.deploymentsErr = settings.Deployments(ctx, c.Client, c.Namespace)
	c.hooks, c.hooksErr = c.readHooks(ctx)
	c.trees, c.treesErr = c.readTrees(ctx)
	report := &Report{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "CheckReport"}}
	for _, check := range c.checks() {
		found := result(Unknown, "This could not be checked: %v", check.unread)
		if check.unread == nil {
			found = check.run(ctx)
		}
		if found.Status == Failed || found.Status == Warning {
			found.Next = cmp.Or(found.Next, check.next)
		}
		found.Name, found.Next = check.name, strings.ReplaceAll(found.Next, "docs/", "https://github.com/heirloom-dev/heirloom/blob/main/docs/")
		found.Details = slices.Concat(found.Details, found.lines())
		report.Checks = append(report.Checks, found.Result)
	}
	return report
}

// Until runs the checks until there is an answer and no failure, or the time is over, and returns the last report. It calls again with each
// earlier report.
func Until(
	ctx context.Context, interval, timeout time.Duration, run func(context.Context) (*Report, error), again func(*Report, error),
) (report *Report, err error) {
	_ = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(context.Context) (bool, error) {
		if report != nil || err != nil {
			again(report, err)
		}
		report, err = run(ctx)
		return err == nil && report.Answered() && len(report.Names(Failed)) == 0, nil
	})
	return report, err
}

// Status is the result of a check.
type Status string

// The statuses, from best to worst.
const (
	Skipped Status = "skipped" // there is nothing to check
	OK      Status = "ok"
	Unknown Status = "unknown" // the check got no answer
	Warning Status = "warning" // worth a look, but may be intended
	Failed  Status = "failed"
)

var worse = []Status{Skipped, OK, Unknown, Warning, Failed}

// Result is the answer of a check. Details are single findings, Next is the advice.
type Result struct {
	Name    string   `json:"name"`
	Status  Status   `json:"status"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"`
	Next    string   `json:"next,omitempty"`
}

// answer is a Result in the making: named holds the findings, each with the objects that it is about.
type answer struct {
	Result
	named map[string][]string
}

func result(status Status, format string, args ...any) answer {
	return answer{Result{Status: status, Message: fmt.Sprintf(format, args...)}, map[string][]string{}}
}

// add adds a finding about an object, or about no particular object if name is empty. The worst status of all findings counts.
func (r *answer) add(status Status, name, format string, args ...any) {
	r.raise(status)
	what := fmt.Sprintf(format, args...)
	r.named[what] = append(r.named[what], name)
}

// raise sets the status, unless the current status is worse.
func (r *answer) raise(status Status) {
	r.Status = worse[max(slices.Index(worse, status), slices.Index(worse, r.Status))]
}

// lines returns a line for each finding, with ten names at most.
func (r *answer) lines() (lines []string) {
	for _, what := range slices.Sorted(maps.Keys(r.named)) {
		names := slices.Compact(slices.Sorted(slices.Values(r.named[what])))
		lines = append(lines, strings.TrimSuffix(what+": "+cli.Some(names, 10), ": "))
	}
	return lines
}

// Report is the answer of the command.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Checks          []Result `json:"checks"`
}

// Names returns the checks with a status.
func (r *Report) Names(status Status) (names []string) {
	for _, one := range r.Checks {
		if one.Status == status {
			names = append(names, one.Name)
		}
	}
	return names
}

// Answered reports whether at least one check got an answer.
func (r *Report) Answered() bool { return len(r.Names(Unknown))+len(r.Names(Skipped)) < len(r.Checks) }

// Write writes the report for people: a line for each check, below it the findings and the advice, and the number of checks with each
// status.
func (r *Report) Write(w io.Writer, p cli.Painter) error {
	styles := map[Status]cli.Style{OK: cli.Good, Warning: cli.Warn, Failed: cli.Bad, Unknown: cli.Dim, Skipped: cli.Dim}
	text, counts, below := "", []string{}, "\n"+strings.Repeat(" ", 30)
	for _, one := range r.Checks {
		// Padding is outside of the colour, so that lines with and without it are aligned alike.
		text += fmt.Sprintf("%s%*s%-20s%s", p.Paint(styles[one.Status], string(one.Status)), 10-len(one.Status), "", one.Name, one.Message)
		for _, detail := range one.Details {
			text += below + "- " + detail
		}
		if one.Next != "" {
			text += below + p.Paint(cli.Bold, "Next:") + " " + one.Next
		}
		text += "\n"
	}
	for _, status := range []Status{OK, Warning, Failed, Unknown, Skipped} {
		if names := r.Names(status); len(names) > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", len(names), status))
		}
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", text, strings.Join(counts, ", "))
	return err
}
