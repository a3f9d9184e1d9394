// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// Read reads what kubectl's flags --filename, --recursive and --kustomize name. "-" is in. The result has all that could be read,
// whatever the error says.
func Read(in io.Reader, from resource.FilenameOptions) (*Set, error) {
	set := &Set{}
	if from.Kustomize != "" {
		if len(from.Filenames) > 0 || from.Recursive {
			return set, errors.New("--kustomize cannot be used with --filename or --recursive")
		}
		return set, set.kustomize(from.Kustomize)
	}
	if len(from.Filenames) == 0 {
		return set, errors.New("name the files to read: --filename, --kustomize or arguments; - is the standard input")
	}
	var errs []error
	read := map[string]bool{}
	for _, name := range from.Filenames {
		files, err := expand(name, from.Recursive)
		errs = append(errs, err)
		for _, file := range files {
			if !read[filepath.Clean(file)] {
				read[filepath.Clean(file)] = true
				errs = append(errs, set.file(in, file))
			}
		}
	}
	return set, errors.Join(errs...)
}

func (s *Set) file(in io.Reader, name string) error {
	if name == "-" {
		content, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("reading the standard input: %w", err)
		}
		return s.Parse("<stdin>", content)
	}
	content, err := os.ReadFile(name) //nolint:gosec // it is the file that the user names
	if err != nil {
		return err // it names the file
	}
	return s.Parse(filepath.ToSlash(name), content)
}

// kustomize adds what a kustomization renders. It has no lines: what is rendered is in no file.
func (s *Set) kustomize(dir string) error {
	err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Kustomize: dir}).Flatten().Do().
		Visit(func(info *resource.Info, err error) error {
			if object, ok := info.Object.(*unstructured.Unstructured); ok && err == nil {
				s.add(&Object{File: filepath.ToSlash(dir), Unstructured: object})
			}
			return err
		})
	if err != nil {
		return fmt.Errorf("--kustomize=%q: %w", dir, err)
	}
	return nil
}

// expand returns the files that a name stands for: itself, the manifests of a directory, or those that match a pattern.
func expand(name string, recursive bool) ([]string, error) {
	switch {
	case name == "-":
		return []string{name}, nil
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		return nil, fmt.Errorf("%s: nothing is read from the network: download the file and name it", name)
	}
	info, err := os.Stat(name)
	if err != nil {
		if found, _ := filepath.Glob(name); len(found) > 0 {
			return found, nil
		}
		return nil, err // it names the file
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !recursive:
			return filepath.SkipDir
		case !entry.IsDir() && slices.Contains(resource.FileExtensions, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no files ending in %s here (--recursive also looks in directories below)", name,
			strings.Join(resource.FileExtensions, ", "))
	}
	return files, err
}
