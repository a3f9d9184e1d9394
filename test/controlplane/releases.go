// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

const capiModule = "sigs.k8s.io/cluster-api"

// Release is a release of Cluster API with which Heirloom is tested.
type Release struct {
	// Name is its version, such as v1.13.6.
	Name string
	// CRDPaths are the directories with the CustomResourceDefinitions of its core, of its kubeadm bootstrap provider and
	// of its kubeadm control-plane provider.
	CRDPaths []string
}

// Releases returns the releases of Cluster API for tests: the last release but one, and the release that go.mod requires.
func Releases(ctx context.Context) ([]Release, error) {
	root, err := RepositoryRoot(ctx)
	if err != nil {
		return nil, err
	}
	var releases []Release
	for _, known := range []struct{ pinnedIn, core string }{
		{"hack/tools/dev", ""}, // core has its own directory only since v1.14
		{"", "core"},
	} {
		name, dir, err := pinned(ctx, filepath.Join(root, known.pinnedIn), capiModule)
		if err != nil {
			return nil, err
		}
		releases = append(releases, Release{Name: name, CRDPaths: capiCRDPaths(dir, known.core)})
	}
	return releases, nil
}

// pinned returns the version of a module that the module in the directory pinnedIn requires, and the directory of its files.
func pinned(ctx context.Context, pinnedIn, module string) (name, dir string, err error) {
	// Heirloom's own module does not require the pinned modules, so they may not be downloaded yet.
	if _, err := goCommand(ctx, "-C", pinnedIn, "mod", "download", module); err != nil {
		return "", "", err
	}
	output, err := goCommand(ctx, "-C", pinnedIn, "list", "-m", "-f", "{{.Version}}\n{{.Dir}}", module)
	if err != nil {
		return "", "", err
	}
	name, dir, found := strings.Cut(output, "\n")
	if !found {
		return "", "", fmt.Errorf("the module in %s has no files of %s: %q", pinnedIn, module, output)
	}
	return name, dir, nil
}

// capiCRDPaths returns the directories with the CustomResourceDefinitions in a copy of Cluster API's module. core is the directory
// of its core in it.
func capiCRDPaths(module, core string) []string {
	var paths []string
	for _, provider := range []string{core, "bootstrap/kubeadm", "controlplane/kubeadm"} {
		paths = append(paths, filepath.Join(module, filepath.FromSlash(provider), "config", "crd", "bases"))
	}
	return paths
}
