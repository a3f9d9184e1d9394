// SPDX-License-Identifier: Apache-2.0

// Command pause holds the namespaces of a Pod: it waits for a signal that ends it.
package main

import (
	"context"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
}
