// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"k8s.io/client-go/rest"
)

const (
	userHeader  = "X-Remote-User"
	groupHeader = "X-Remote-Group"
)

// Client returns the configuration of a client that calls the Server without a socket.
func (s *Server) Client(user string, groups ...string) *rest.Config {
	return &rest.Config{Host: "http://" + s.options.Name, QPS: -1, Transport: transport{handler: s, user: user, groups: groups}}
}

// transport runs a handler in one goroutine for each request.
type transport struct {
	handler http.Handler
	user    string
	groups  []string
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	served := r.Clone(ctx)
	served.Header.Set(userHeader, t.user)
	served.Header[groupHeader] = t.groups
	served.RequestURI = r.URL.RequestURI()
	if served.Body == nil {
		served.Body = http.NoBody
	}
	a := &answer{request: r, cancel: cancel, header: http.Header{}, ready: make(chan struct{})}
	go a.serve(t.handler, served)
	select {
	case <-a.ready:
	case <-r.Context().Done():
		select {
		case <-a.ready: // both at the same time: the answer counts
		default:
			cancel()
			return nil, r.Context().Err()
		}
	}
	return a.response, a.err
}

// answer is an http.ResponseWriter. It keeps all bytes before the first Flush; later bytes go through a pipe.
type answer struct {
	request *http.Request
	cancel  context.CancelFunc
	header  http.Header
	code    int
	buffer  bytes.Buffer
	pipe    *io.PipeWriter

	ready    chan struct{} // is closed once response or err is set
	response *http.Response
	err      error
}

func (a *answer) serve(handler http.Handler, r *http.Request) {
	defer func() {
		_ = r.Body.Close()
		if panicked := recover(); panicked != nil {
			err, ok := panicked.(error)
			if !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(panicked)
			}
			a.abort()
		}
	}()
	handler.ServeHTTP(a, r)
	if a.pipe != nil {
		_ = a.pipe.Close()
		return
	}
	a.answer(io.NopCloser(&a.buffer))
	a.cancel()
}

// abort breaks the connection of the client.
func (a *answer) abort() {
	defer a.cancel()
	err := fmt.Errorf("the connection broke: %w", syscall.ECONNRESET)
	if a.pipe != nil {
		_ = a.pipe.CloseWithError(err)
		return
	}
	a.err = err
	close(a.ready)
}

func (a *answer) answer(body io.ReadCloser) {
	a.WriteHeader(http.StatusOK)
	a.response = &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: body, ContentLength: -1, Request: a.request,
	}
	close(a.ready)
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.pipe != nil {
		return a.pipe.Write(p)
	}
	return a.buffer.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	if a.pipe != nil {
		return
	}
	reader, writer := io.Pipe()
	a.answer(&streamed{PipeReader: reader, first: bytes.NewReader(a.buffer.Bytes()), cancel: a.cancel})
	a.pipe = writer
}

// streamed is the body of a watch. Close ends the request.
type streamed struct {
	*io.PipeReader
	first  *bytes.Reader
	cancel context.CancelFunc
}

func (s *streamed) Read(p []byte) (int, error) {
	if s.first.Len() > 0 {
		return s.first.Read(p)
	}
	return s.PipeReader.Read(p)
}

func (s *streamed) Close() error {
	s.cancel()
	return s.PipeReader.Close()
}
