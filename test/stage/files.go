// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// files holds the paths that every stage needs.
type files struct {
	chart, providers string
	clusterAPI       []string
}

// here finds the files once per process: it runs the go command, which is slow.
var here = sync.OnceValues(func() (files, error) {
	ctx := context.Background()
	root, err := controlplane.RepositoryRoot(ctx)
	if err != nil {
		return files{}, err
	}
	f := files{chart: filepath.Join(root, "deploy", "chart", "heirloom")}
	if f.clusterAPI, err = controlplane.CAPICRDPaths(); err != nil {
		return files{}, err
	}
	f.providers, err = controlplane.ProviderCRDPath(ctx)
	return f, err
})
