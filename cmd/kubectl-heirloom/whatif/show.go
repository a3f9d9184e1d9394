// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Program compares two directories, as kubectl diff lets it.
type Program struct {
	// External is the value of KUBECTL_EXTERNAL_DIFF; if it is empty, the program is diff.
	External    string
	Out, ErrOut io.Writer
}

// Show writes the objects into two directories, LIVE and MERGED, and runs the program on them. The names of the files keep the order
// of the owner chain. Objects that change alike are shown once, unless all are asked for.
func (p Program) Show(ctx context.Context, objects []*Object, all bool) error {
	dir, err := os.MkdirTemp("", "heirloom-diff-")
	if err != nil {
		return fmt.Errorf("making a directory for the differences: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	live, merged := filepath.Join(dir, "LIVE"), filepath.Join(dir, "MERGED")
	if err := errors.Join(os.Mkdir(live, 0o700), os.Mkdir(merged, 0o700)); err != nil {
		return fmt.Errorf("making a directory for the differences: %w", err)
	}
	list, err := grouped(objects, all)
	if err != nil {
		return err
	}
	for i, o := range list {
		name := o.file(i + 1)
		if err := errors.Join(store(live, name, o.Live), store(merged, name, o.Merged)); err != nil {
			return err
		}
	}
	return p.run(ctx, live, merged)
}

// file is the name of an object's file. It is what a program for differences shows of the object.
func (o shownObject) file(number int) string {
	name := fmt.Sprintf("%04d.%s.%s", number, o.Kind, strings.ReplaceAll(o.key(), "/", "."))
	if o.Kind == "Node" {
		name += ".of." + strings.ReplaceAll(o.Cluster, "/", ".")
	}
	switch {
	case o.others == 1:
		name += ".and-1-other-like-it"
	case o.others > 1:
		name += fmt.Sprintf(".and-%d-others-like-it", o.others)
	}
	return name
}

// store writes an object into a directory; nothing, if it does not exist.
func store(dir, name string, object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	text, err := yaml.Marshal(shown(object))
	if err != nil {
		return fmt.Errorf("writing %s: %w", nameOf(object), err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", nameOf(object), err)
	}
	return nil
}

// run runs the program. That it finds a difference is no error.
func (p Program) run(ctx context.Context, live, merged string) error {
	name, args := "diff", []string{"-u", "-N"}
	if words := strings.Fields(p.External); len(words) > 0 {
		name, args = words[0], nil
		plain := regexp.MustCompile(`^[a-zA-Z0-9-=]+$`) // what kubectl diff passes on
		for _, word := range words[1:] {
			if plain.MatchString(word) {
				args = append(args, word)
			}
		}
	}
	command := exec.CommandContext(ctx, name, append(args, live, merged)...) //nolint:gosec // the user names the program
	command.Stdout, command.Stderr = p.Out, p.ErrOut
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.As(err, &exit) && exit.ExitCode() == 1:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %q to show differences with: install it, or name another in KUBECTL_EXTERNAL_DIFF", name)
	default:
		return fmt.Errorf("running %s to show differences: %w", name, err)
	}
}
