// A function in Go: one `wasi:http/incoming-handler`.
package export_wasi_http_incoming_handler

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"runtime/debug"

	witTypes "go.bytecodealliance.org/pkg/wit/types"

	"wit_component/wasi_http_types"
)

// Most bytes of one read, and of one BlockingWriteAndFlush.
const chunk = 4096

// Stays at 1: every request meets the state of a program that just started.
var count int

// An instance serves one request, so there is little to collect. And there is a
// bug to avoid: where a collection begins while the host allocates, as it does
// to pass a body, the adapter's calls of WASI trap (wasmtime issue 14318).
func init() {
	debug.SetGCPercent(-1)
}

func Handle(request *wasi_http_types.IncomingRequest, responseOut *wasi_http_types.ResponseOutparam) {
	count++
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "%s %s\n", name(request.Method()), request.PathWithQuery().SomeOr("/"))
	fmt.Fprintf(&answer, "x-echo %s\n", bytes.Join(request.Headers().Get("x-echo"), []byte(", ")))
	fmt.Fprintf(&answer, "random %s\n", rand.Text())
	fmt.Fprintf(&answer, "count %d\n\n", count)
	readBody(request, &answer)

	headers := wasi_http_types.MakeFields()
	headers.Set("content-type", [][]byte{[]byte("text/plain; charset=utf-8")})
	response := wasi_http_types.MakeOutgoingResponse(headers)
	body := response.Body().Ok()
	// The head goes first; the body is written to the stream afterwards.
	wasi_http_types.ResponseOutparamSet(responseOut,
		witTypes.Ok[*wasi_http_types.OutgoingResponse, wasi_http_types.ErrorCode](response))
	stream := body.Write().Ok()
	for answer.Len() > 0 {
		// A write that fails means the client has gone away: no reason to trap.
		if stream.BlockingWriteAndFlush(answer.Next(chunk)).IsErr() {
			break
		}
	}
	// The stream is a child of the body and must be gone before OutgoingBodyFinish.
	stream.Drop()
	wasi_http_types.OutgoingBodyFinish(body, witTypes.None[*wasi_http_types.Fields]())
}

func readBody(request *wasi_http_types.IncomingRequest, into *bytes.Buffer) {
	body := request.Consume().Ok()
	defer body.Drop()
	stream := body.Stream().Ok()
	defer stream.Drop()
	for {
		read := stream.BlockingRead(chunk)
		if read.IsErr() {
			// The end, or a client that has gone away.
			return
		}
		into.Write(read.Ok())
	}
}

func name(method wasi_http_types.Method) string {
	if method.Tag() == wasi_http_types.Method_Other {
		return method.Other()
	}
	// In the order of the interface's enumeration.
	names := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
	return names[method.Tag()]
}
