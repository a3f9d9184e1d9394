// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// pauseImage builds the image that every Pod needs, as an archive in Docker's format. It has only one program, which is statically linked
// and holds a Pod's namespaces: it does nothing until a signal ends it.
const pauseImage = `
go build -o "$DIR/pause" ./test/cluster/pause
cd "$DIR"
tar -cf layer.tar pause
digest=$(sha256sum layer.tar)
cat >config.json <<-END
	{"architecture": "$ARCHITECTURE", "os": "linux", "config": {"Entrypoint": ["/pause"]},
	 "rootfs": {"type": "layers", "diff_ids": ["sha256:${digest%% *}"]}}
END
echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$IMAGE\"], \"Layers\": [\"layer.tar\"]}]" >manifest.json
tar -cf pause.tar layer.tar config.json manifest.json`

// buildPauseImage returns the archive of the pause image.
func buildPauseImage(ctx context.Context, dir string) (archive string, err error) {
	build := exec.CommandContext(ctx, "bash", "-euc", pauseImage)
	if build.Dir, err = controlplane.RepositoryRoot(ctx); err != nil {
		return "", err
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "DIR="+dir, "IMAGE="+PauseImage, "ARCHITECTURE="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the pause image: %w: %s", err, out)
	}
	return filepath.Join(dir, "pause.tar"), nil
}

// importImage imports the images of an archive into containerd and returns the name of the first image.
func importImage(ctx context.Context, archive string) (string, error) {
	out, err := exec.CommandContext(ctx, "ctr", "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("loading the image %s into containerd: %w: %s", archive, err, out)
	}
	fields := strings.Fields(strings.TrimPrefix(string(out), "unpacking "))
	if len(fields) == 0 {
		return "", fmt.Errorf("loading the image %s into containerd: it does not say which: %s", archive, out)
	}
	return fields[0], nil
}
