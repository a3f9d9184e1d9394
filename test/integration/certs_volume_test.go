// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// volume is a Secret as a kubelet mounts it: each file is a link through the link ..data to a directory of its own for each
// version of the Secret, and the one change of ..data changes all files.
type volume struct {
	dir     string
	version int
}

// write shows another version of the Secret.
func (v *volume) write(data map[string][]byte) error {
	v.version++
	name := fmt.Sprintf("..version-%d", v.version)
	if err := os.Mkdir(filepath.Join(v.dir, name), 0o700); err != nil {
		return err
	}
	for file, content := range data {
		if err := os.WriteFile(filepath.Join(v.dir, name, file), content, 0o600); err != nil {
			return err
		}
	}
	before, _ := os.Readlink(filepath.Join(v.dir, "..data")) // none at first
	temporary := filepath.Join(v.dir, "..data_tmp")
	if err := os.Symlink(name, temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(v.dir, "..data")); err != nil {
		return err
	}
	if before != "" {
		return os.RemoveAll(filepath.Join(v.dir, before))
	}
	for file := range data {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// mount keeps a directory like a Secret until stop is called, as late as a kubelet is. It returns when the Secret is there.
func (s *scene) mount(secret types.NamespacedName, dir string, late time.Duration) (v *volume, stop func()) {
	s.t.Helper()
	v = &volume{dir: dir}
	var shown map[string][]byte
	s.Eventually(func(g Gomega) {
		object := &corev1.Secret{}
		g.Expect(s.Client.Get(s.ctx, secret, object)).To(Succeed())
		g.Expect(object.Data).To(HaveKey("tls.crt"))
		shown = object.Data
	}).WithTimeout(2 * patience).Should(Succeed())
	s.Expect(v.write(shown)).To(Succeed())

	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{}}
			if err := s.Client.Get(ctx, secret, object); err != nil || maps.EqualFunc(shown, object.Data, equalBytes) {
				return
			}
			// What was read is shown later: meanwhile others may have seen it.
			select {
			case <-ctx.Done():
				return
			case <-time.After(late):
			}
			if err := v.write(object.Data); err != nil {
				s.t.Errorf("showing the Secret: %v", err)
				return
			}
			shown = object.Data
		}, tempo)
	}()
	return v, func() { cancel(); <-done }
}

func equalBytes(a, b []byte) bool { return string(a) == string(b) }
