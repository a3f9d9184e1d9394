package world

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestDebugWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		ctx, cancel := context.WithCancel(t.Context())
		go w.scheduler.run(ctx)
		fmt.Println(w.build(ctx, 1, 1))
		cfg := w.management.server.Client("cluster-api")
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://management/apis/cluster.x-k8s.io/v1beta2/machinedeployments?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true&timeoutSeconds=400", nil)
		resp, err := cfg.Transport.RoundTrip(req)
		fmt.Println(resp, err)
		s := bufio.NewScanner(resp.Body)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			fmt.Println(time.Now(), s.Text()[:min(300, len(s.Text()))])
		}
		fmt.Println(s.Err())
		cancel()
	})
}
