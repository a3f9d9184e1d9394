// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

func mortal() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
