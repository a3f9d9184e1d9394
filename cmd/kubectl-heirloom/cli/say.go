// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit codes of all commands, as those of kubectl diff.
const (
	// ExitOK means that the question was answered, and all is as it should be.
	ExitOK = 0
	// ExitFound means that the question was answered, and something is not as it should be: there is a difference, a finding or a
	// failed check, or something that an object inherits is not there.
	ExitFound = 1
	// ExitFailed means that the question could not be answered.
	ExitFailed = 2
)

// ErrFound ends a command with ExitFound. The command has already said what it found.
var ErrFound = errors.New("something is not as it should be")

// ExitCode returns the exit code for a command's error. One that was found and one that failed, joined, is one that failed.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case Sentence(err) == "":
		return ExitFound
	}
	return ExitFailed
}

// NotFound says that an object is not there, in kubectl's words. Without a namespace, it is of a kind that has none.
func NotFound(kind string, key types.NamespacedName) error {
	if key.Namespace == "" {
		return fmt.Errorf("%s %q not found", kind, key.Name)
	}
	return fmt.Errorf("%s %q not found in namespace %q (use -n)", kind, key.Name, key.Namespace)
}

// Sentence says what went wrong. Several joined errors become several lines, each only once. ErrFound becomes nothing.
func Sentence(err error) string {
	if err == nil || errors.Is(err, ErrFound) && !isJoined(err) {
		return "" // the command has said it
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok && isJoined(err) {
		var lines []string
		for _, one := range several.Unwrap() {
			if line := Sentence(one); line != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	line := err.Error()
	var unreached *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &unreached):
		if says, ok := cmdutil.StandardErrorMessage(unreached); ok {
			return strings.Replace(line, unreached.Error(), says, 1)
		}
	}
	return line
}

// isJoined reports whether an error is from errors.Join, rather than from fmt.Errorf with several errors.
func isJoined(err error) bool {
	several, ok := err.(interface{ Unwrap() []error })
	return ok && errors.Join(several.Unwrap()...).Error() == err.Error()
}

// quiet is how long a step may take before the command says what it waits for.
const quiet = time.Second

// Progress says on standard error what a command is doing, if that takes longer than a second. Call the result when it is done.
func (f *Factory) Progress(format string, args ...any) (done func()) {
	timer := time.AfterFunc(quiet, func() { _, _ = fmt.Fprintf(f.ErrOut, format+" …\n", args...) })
	return func() { timer.Stop() }
}

// SilenceLogs keeps what Kubernetes' libraries log off standard error: an error that stops a command is printed once. The flag -v brings
// the logs back.
func SilenceLogs() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(klog.Background())
}

// showLogs does what -v says.
func (f *Factory) showLogs() error {
	if f.Verbosity <= 0 {
		return nil
	}
	klog.ClearLogger()
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Set("v", strconv.Itoa(f.Verbosity))
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OneLine returns an error as a part of a sentence. Errors that are joined have a line each.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// widest is how much of a value a table shows, in characters. Annotations can be long.
const widest = 48

// Shorten returns a value as a table shows it.
func Shorten(value string) string {
	value = strings.Join(strings.Fields(value), " ")
	if runes := []rune(value); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return value
}
