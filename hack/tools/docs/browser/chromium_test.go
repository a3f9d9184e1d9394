// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
)

// The widths of a common phone and of a laptop.
const (
	phone  = 390
	laptop = 1280
)

// tab is a tab of the browser, with the site on a local server.
type tab struct {
	context.Context
	*WithT
	address string

	mu     sync.Mutex
	faults []string
}

// open starts a browser, or skips the test if there is none.
func open(t *testing.T, width int64) *tab {
	t.Helper()
	directory := site(t)
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("there is no chromium")
	}
	server := httptest.NewServer(http.StripPrefix(base, http.FileServer(http.Dir(directory))))
	t.Cleanup(server.Close)
	// A container lacks the rights for a sandbox, and the browser shows only our own pages.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	result := &tab{Context: ctx, WithT: NewWithT(t), address: server.URL}
	result.do(chromedp.EmulateViewport(width, 850))
	result.Expect(chromedp.Listen(ctx, result.note)).To(Succeed())
	return result
}

// do runs steps in the browser.
func (t *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.Expect(chromedp.Do(t, steps...)).To(Succeed())
}

// visit opens a page, and returns its faults.
func (t *tab) visit(page string) []string {
	t.messages()
	t.do(chromedp.Navigate(t.address + base + page))
	return t.messages()
}

// messages returns the faults since the last call.
func (t *tab) messages() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	faults := t.faults
	t.faults = nil
	return faults
}

// note records the errors and warnings of a page, and requests that fail or go to other hosts.
func (t *tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if event.Type == "warning" || event.Type == "error" {
			t.faults = append(t.faults, fmt.Sprintf("console: %s: %s", event.Type, event.Args[0].Value))
		}
	case *runtime.EventExceptionThrown:
		t.faults = append(t.faults, "exception: "+event.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelWarning || event.Entry.Level == log.EntryLevelError {
			t.faults = append(t.faults, "console: "+event.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if address := event.Request.URL; !strings.HasPrefix(address, t.address+base) && !strings.HasPrefix(address, "data:") {
			t.faults = append(t.faults, "request to "+address)
		}
	case *network.EventResponseReceived:
		if event.Response.Status >= http.StatusBadRequest {
			t.faults = append(t.faults, fmt.Sprintf("%s: %d", event.Response.URL, event.Response.Status))
		}
	case *network.EventLoadingFailed:
		if !event.Canceled {
			t.faults = append(t.faults, "a request failed: "+event.ErrorText)
		}
	}
}

// ask evaluates an expression in the page.
func ask[T any](t *tab, expression string) T {
	answer, err := chromedp.Run(t, chromedp.Evaluate[T](expression))
	t.Expect(err).NotTo(HaveOccurred(), expression)
	return answer
}

// wait waits until an expression is true in the page, which may change meanwhile.
func (t *tab) wait(expression string) {
	t.Eventually(func() (bool, error) {
		return chromedp.Run(t, chromedp.Evaluate[bool](expression))
	}).WithTimeout(20*time.Second).Should(BeTrue(), expression)
}
