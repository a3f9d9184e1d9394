// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

// parser reads the server's flags with the server's own code.
type parser struct {
	options *config.Options
	fs      *pflag.FlagSet
}

func newParser() parser {
	p := parser{options: config.NewOptions(), fs: pflag.NewFlagSet("heirloom", pflag.ContinueOnError)}
	p.fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	p.fs.Usage = func() {}
	p.options.AddFlags(p.fs)
	return p
}

// lenient is what the arguments of a running server mean.
type lenient struct {
	parser
	config *config.Config
	// unknown are flags that this plugin does not know, refused those with a value that it does not accept.
	unknown, refused []string
}

// parseLeniently reads the arguments of a running server. Its plugin may be of another release, so nothing here is an error.
func parseLeniently(arguments []string) lenient {
	flags := group(arguments)
	l := parseGroups(flags)
	if l.config != nil {
		return l
	}
	_, err := l.options.Complete()
	var refused []string
	flags = slices.DeleteFunc(flags, func(flag []string) bool {
		name := nameOf(flag)
		named := err != nil && strings.Contains(err.Error(), name)
		if named {
			refused = append(refused, name)
		}
		return named
	})
	l = parseGroups(flags)
	if l.config == nil { // it cannot be told which flag is at fault
		l.parser = newParser()
		l.config, _ = l.options.Complete() // the defaults are valid
		refused = append(refused, "all flags")
	}
	l.refused = append(l.refused, refused...)
	return l
}

// parseGroups reads one flag after the other. config is nil if they are not valid together.
func parseGroups(flags [][]string) lenient {
	l := lenient{parser: newParser()}
	for _, flag := range flags {
		var unknown *pflag.NotExistError
		err := l.fs.Parse(flag)
		switch {
		case errors.As(err, &unknown):
			l.unknown = append(l.unknown, nameOf(flag))
		case err != nil:
			l.refused = append(l.refused, nameOf(flag))
		}
	}
	l.config, _ = l.options.Complete()
	return l
}

// group puts each flag together with its value, which may be an argument of its own.
func group(arguments []string) [][]string {
	var flags [][]string
	for _, argument := range arguments {
		if strings.HasPrefix(argument, "-") || len(flags) == 0 {
			flags = append(flags, nil)
		}
		last := len(flags) - 1
		flags[last] = append(flags[last], argument)
	}
	return flags
}

func nameOf(flag []string) string {
	name, _, _ := strings.Cut(flag[0], "=")
	return name
}
