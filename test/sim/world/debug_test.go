package world

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func init() {
	if os.Getenv("SIM_STEPS") != "" {
		debugStep = func(t *turn) {
			fmt.Println("STEP", time.Now().Format("04:05.000"), t.server, t.step.Phase, t.step.User, t.step.Method, t.step.Path, t.step.Sequence)
		}
	}
	if os.Getenv("SIM_HTTP") != "" {
		debugHTTP = func(r *http.Request, resp *http.Response, err error) {
			if err != nil {
				fmt.Println("HTTP", r.Method, r.URL, err)
				return
			}
			if resp.StatusCode >= 400 {
				b, _ := io.ReadAll(resp.Body)
				resp.Body = io.NopCloser(bytes.NewReader(b))
				fmt.Println("HTTP", r.Method, r.URL, resp.StatusCode, string(b))
			}
		}
	}
}
