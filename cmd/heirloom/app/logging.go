// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// longestLogged is the number of bytes that are logged of a message, an error or a value. Others choose the content: a review, a kubeconfig
// or an answer of a workload cluster may have megabytes.
const longestLogged = 2 << 10

// brief shortens long messages, errors and values. It keeps the values of a logger until something is logged, because few requests log
// anything.
type brief struct {
	logr.LogSink
	values []any
}

// briefly returns a logger that shortens the messages, errors and values of another logger.
func briefly(logger logr.Logger) logr.Logger {
	return logger.WithSink(brief{LogSink: logger.WithCallDepth(1).GetSink()})
}

// Enabled implements logr.LogSink. It is not promoted, so that the call depth is the same as for the other methods.
func (b brief) Enabled(level int) bool { return b.LogSink.Enabled(level) }

// Info implements logr.LogSink.
func (b brief) Info(level int, message string, keysAndValues ...any) {
	message, _ = cut(message)
	b.LogSink.Info(level, message, b.all(keysAndValues)...)
}

// Error implements logr.LogSink.
func (b brief) Error(err error, message string, keysAndValues ...any) {
	if text, long := cut(err); long {
		err = errors.New(text)
	}
	message, _ = cut(message)
	b.LogSink.Error(err, message, b.all(keysAndValues)...)
}

// WithValues implements logr.LogSink.
func (b brief) WithValues(keysAndValues ...any) logr.LogSink {
	b.values = slices.Concat(b.values, keysAndValues)
	return b
}

// WithName implements logr.LogSink.
func (b brief) WithName(name string) logr.LogSink {
	b.LogSink = b.LogSink.WithName(name)
	return b
}

// WithCallDepth implements logr.CallDepthLogSink.
func (b brief) WithCallDepth(depth int) logr.LogSink {
	b.LogSink = logr.Logger{}.WithSink(b.LogSink).WithCallDepth(depth).GetSink()
	return b
}

// all returns the logger's own keys and values, and then keysAndValues. It does not shorten stacks: they are long, but others do not choose
// their content.
func (b brief) all(keysAndValues []any) []any {
	all := slices.Concat(b.values, keysAndValues)
	for i := 1; i < len(all); i += 2 {
		if text, long := cut(all[i]); long && !strings.HasPrefix(fmt.Sprint(all[i-1]), "stack") {
			all[i] = text
		}
	}
	return all
}

func cut(value any) (text string, long bool) {
	text = fmt.Sprint(value)
	return inherit.Shorten(text, longestLogged), len(text) > longestLogged
}
