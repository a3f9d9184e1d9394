// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// SilenceLogs keeps what Kubernetes' libraries log off standard error: an error that stops a command is printed once, in the
// plugin's own words. The flag -v brings the logs back.
func SilenceLogs() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(klog.Background())
}

// showLogs does what -v says.
func (f *Factory) showLogs() error {
	if f.Verbosity <= 0 {
		return nil
	}
	klog.ClearLogger()
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Set("v", strconv.Itoa(f.Verbosity))
}
