// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// update is an entry of .github/dependabot.yml.
type update struct {
	Ecosystem   string `json:"package-ecosystem"`
	Directory   string
	Directories []string
	Allow       []allowed
}

type allowed struct {
	Type string `json:"dependency-type"`
	Name string `json:"dependency-name"`
}

// Every module gets updates, and so does each tool that a module pins: Dependabot ignores "indirect" requirements unless they are named.
func TestDependabotKnowsEveryModule(t *testing.T) {
	Expect := NewWithT(t).Expect
	var config struct{ Updates []update }
	read(t, ".github/dependabot.yml", &config)
	var covered []string
	for _, update := range config.Updates {
		if update.Ecosystem != "gomod" {
			Expect(update.Ecosystem + update.Directory).To(Equal("github-actions/"))
			continue
		}
		if update.Directory != "" {
			update.Directories = append(update.Directories, update.Directory)
		}
		covered = append(covered, update.Directories...)
		for _, directory := range update.Directories {
			for _, tool := range tools(t, directory) {
				Expect(update.allows(tool)).To(BeTrue(), "%s of %s", tool, directory)
			}
		}
	}
	Expect(covered).To(ConsistOf(modules(t)))
}

func (u update) allows(module string) bool {
	return slices.ContainsFunc(u.Allow, func(allow allowed) bool {
		matches, _ := path.Match(allow.Name, module)
		return allow.Type == "all" && matches
	})
}

// modules returns the directories of all modules, in Dependabot's notation.
func modules(t *testing.T) (directories []string) {
	t.Helper()
	NewWithT(t).Expect(filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "go.mod" {
			relative, _ := filepath.Rel(root, filepath.Dir(file))
			directories = append(directories, path.Join("/", filepath.ToSlash(relative)))
		}
		return err
	})).To(Succeed())
	return directories
}

// tools returns the modules of the tools that a module pins.
func tools(t *testing.T, directory string) (required []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	output, err := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, directory), "mod", "edit", "-json").Output()
	Expect(err).NotTo(HaveOccurred())
	var module struct {
		Tool    []struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	Expect(json.Unmarshal(output, &module)).To(Succeed())
	for _, tool := range module.Tool {
		longest, indirect := "", false
		for _, require := range module.Require {
			if strings.HasPrefix(tool.Path+"/", require.Path+"/") && len(require.Path) > len(longest) {
				longest, indirect = require.Path, require.Indirect
			}
		}
		Expect(longest).NotTo(BeEmpty(), tool.Path)
		if indirect {
			required = append(required, longest)
		}
	}
	return required
}

// A tag of an action can move, a commit cannot.
func TestActionsArePinned(t *testing.T) {
	Expect := NewWithT(t).Expect
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(len(workflows)).To(BeNumerically(">=", 3))
	pinned := map[string]string{}
	for _, workflow := range workflows {
		content, err := os.ReadFile(workflow)
		Expect(err).NotTo(HaveOccurred())
		for _, uses := range regexp.MustCompile(`(?m)^[ -]*uses: (.*)$`).FindAllStringSubmatch(string(content), -1) {
			if strings.HasPrefix(uses[1], "./") {
				continue
			}
			Expect(uses[1]).To(MatchRegexp(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`), workflow)
			action, version, _ := strings.Cut(uses[1], "@")
			if pinned[action] == "" {
				pinned[action] = version
			}
			Expect(version).To(Equal(pinned[action]), "%s has two versions of %s", workflow, action)
		}
	}
}

// Issue forms meet GitHub's requirements: GitHub shows no invalid form.
func TestIssueForms(t *testing.T) {
	for _, form := range []string{"bug.yml", "feature.yml"} {
		t.Run(form, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var content struct {
				Name, Description string
				Body              []struct {
					Type, ID   string
					Attributes struct {
						Label, Value string
						Options      []any
					}
				}
			}
			read(t, ".github/ISSUE_TEMPLATE/"+form, &content)
			Expect(content.Name).NotTo(BeEmpty())
			Expect(content.Description).NotTo(BeEmpty())
			seen := map[string]bool{}
			for _, field := range content.Body {
				if field.Type == "markdown" {
					Expect(field.Attributes.Value).NotTo(BeEmpty())
					continue
				}
				Expect(field.Type).To(BeElementOf("input", "textarea", "dropdown", "checkboxes"))
				Expect(field.Attributes.Label).NotTo(BeEmpty())
				Expect(field.ID).To(MatchRegexp(`^[a-z-]+$`))
				Expect(seen[field.ID]).To(BeFalse(), "two fields %s", field.ID)
				seen[field.ID] = true
				Expect(len(field.Attributes.Options) > 0).To(Equal(field.Type == "dropdown" || field.Type == "checkboxes"), field.ID)
			}
			Expect(seen).NotTo(BeEmpty())
		})
	}
}

// read decodes a file of the repository.
func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(yaml.Unmarshal(content, into)).To(Succeed(), file)
}
