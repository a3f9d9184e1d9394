package world

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

func init() {
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
