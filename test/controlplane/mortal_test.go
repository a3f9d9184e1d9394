// SPDX-License-Identifier: Apache-2.0
//go:build linux

package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// victimVariable turns this test binary into a process that starts a control plane and waits until it is killed.
const victimVariable = "HEIRLOOM_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) == "" {
		os.Exit(m.Run())
	}
	if err := beVictim(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beVictim starts a control plane and a kubelet, and then prints a claimed port and the paths of the kubelet's directory and socket.
func beVictim() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := controlplane.TempDir("victim")
	if err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{LogDir: dir, AuditLog: filepath.Join(dir, "audit.log")})
	if err != nil {
		return err
	}
	kubelet, err := cp.StartKubelet(ctx, controlplane.KubeletOptions{Name: "victim", Dir: dir})
	if err != nil {
		return err
	}
	if _, err := kubelet.WaitRegistered(ctx); err != nil {
		return err
	}
	if _, err := controlplane.StartProcess(ctx, "/bin/sleep", []string{"300"}, filepath.Join(dir, "sleep.log")); err != nil {
		return err
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(dir, "victim.log"))
	if err != nil {
		return err
	}
	files := regexp.MustCompile(`(?s)Using (\S+) as root dir.*endpoint="unix://(\S+)"`).FindSubmatch(log)
	if files == nil {
		return errors.New("the kubelet has made no directory, or no socket")
	}
	fmt.Println(port, string(files[1]), string(files[2]))
	<-ctx.Done()
	return errors.New("nobody has killed it")
}

// A run of tests that is killed leaves nothing behind.
func TestNothingIsLeftOfAProcessThatIsKilled(t *testing.T) {
	Expect := NewWithT(t).Expect
	temporary, cache := shortTempDir(t), shortTempDir(t)
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"=yes", "TMPDIR="+temporary, "XDG_CACHE_HOME="+cache)
	victim.Stderr = os.Stderr
	victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := victim.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(victim.Start()).To(Succeed())
	t.Cleanup(func() { _ = victim.Process.Kill() }) // it may have ended
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	var port int
	var directory, socket string
	_, err = fmt.Sscan(line, &port, &directory, &socket)
	Expect(err).NotTo(HaveOccurred())
	children := childrenOf(t, victim.Process.Pid)
	Expect(len(children)).To(BeNumerically(">=", 5), "etcd, kube-apiserver, kubelet, sleep and the shell that removes files")
	Expect(directory).To(BeADirectory())
	Expect(socket).To(BeAnExistingFile())
	Expect(os.ReadDir(temporary)).NotTo(BeEmpty())

	// The signal goes to the process group, like Ctrl-C in a terminal, but no process can handle it.
	Expect(syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)).To(Succeed(), "its whole process group")
	Expect(victim.Wait()).NotTo(Succeed())
	NewWithT(t).Eventually(func(g Gomega) {
		for name, pid := range children {
			g.Expect(alive(pid)).To(BeFalse(), name)
		}
		g.Expect(os.ReadDir(temporary)).To(BeEmpty())
		g.Expect(os.ReadDir(cache)).To(BeEmpty())
		g.Expect(directory).NotTo(BeAnExistingFile())
		g.Expect(socket).NotTo(BeAnExistingFile())
		claim, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		g.Expect(err).NotTo(HaveOccurred(), "the port")
		g.Expect(claim.Close()).To(Succeed())
	}).WithTimeout(30 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// shortTempDir is t.TempDir without the test's name, which would make paths too long for Unix sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "controlplane")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// childrenOf returns the IDs of the processes that a process has started, by name.
func childrenOf(t *testing.T, parent int) map[string]string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	children := map[string]string{}
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a thread that has ended
		}
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		for _, pid := range strings.Fields(string(pids)) {
			name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			children[strings.TrimSpace(string(name))] = pid
		}
	}
	return children
}

// alive reports whether a process runs. A process that has ended may stay in the process table until its parent waits for it.
func alive(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}
