// Counts hits: `GET /NAME` adds one to that name's number and answers with it.
package export_wasi_http_incoming_handler

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	witTypes "go.bytecodealliance.org/pkg/wit/types"

	"wit_component/wasi_http_types"
	"wit_component/wasi_keyvalue_atomics"
	"wit_component/wasi_keyvalue_store"
)

// The function's own store, which needs no grant.
const store = "default"

var isName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString

// An instance serves one request, so there is little to collect. And there is a
// bug to avoid: where a collection begins while the host allocates, as it does
// to pass a path, the adapter's calls of WASI trap (wasmtime issue 14318).
func init() {
	debug.SetGCPercent(-1)
}

func Handle(request *wasi_http_types.IncomingRequest, responseOut *wasi_http_types.ResponseOutparam) {
	status, text := answer(request)
	respond(responseOut, status, text)
}

func answer(request *wasi_http_types.IncomingRequest) (uint16, string) {
	if method := request.Method(); method.Tag() != wasi_http_types.Method_Get {
		return 405, "only GET counts\n"
	}
	path, _, _ := strings.Cut(request.PathWithQuery().SomeOr("/"), "?")
	name := strings.TrimPrefix(path, "/")
	if !isName(name) {
		return 404, "a name has 1 to 64 letters, digits, '-', '_' and '.'\n"
	}
	opened := wasi_keyvalue_store.Open(store)
	if opened.IsErr() {
		return unavailable(name, opened.Err())
	}
	bucket := opened.Ok()
	defer bucket.Drop()
	// One step for all instances: two requests at once get two numbers.
	count := wasi_keyvalue_atomics.Increment(bucket, name, 1)
	if count.IsErr() {
		return unavailable(name, count.Err())
	}
	return 200, fmt.Sprintf("%d\n", count.Ok())
}

func unavailable(name string, err wasi_keyvalue_store.Error) (uint16, string) {
	why := "no such store"
	switch err.Tag() {
	case wasi_keyvalue_store.Error_AccessDenied:
		why = "access denied"
	case wasi_keyvalue_store.Error_Other:
		why = err.Other()
	}
	// The function's log; a client need not know more than that it may try again.
	fmt.Fprintf(os.Stderr, "%s was not counted: %s\n", name, why)
	return 503, "the count is not available\n"
}

func respond(out *wasi_http_types.ResponseOutparam, status uint16, text string) {
	headers := wasi_http_types.MakeFields()
	headers.Set("content-type", [][]byte{[]byte("text/plain; charset=utf-8")})
	// What a cache answers is not counted.
	headers.Set("cache-control", [][]byte{[]byte("no-store")})
	if status == 405 {
		headers.Set("allow", [][]byte{[]byte("GET")})
	}
	response := wasi_http_types.MakeOutgoingResponse(headers)
	response.SetStatusCode(status)
	body := response.Body().Ok()
	// The head goes first; the body is written to the stream afterwards.
	wasi_http_types.ResponseOutparamSet(out,
		witTypes.Ok[*wasi_http_types.OutgoingResponse, wasi_http_types.ErrorCode](response))
	stream := body.Write().Ok()
	// A write that fails means the client has gone away: no reason to trap.
	stream.BlockingWriteAndFlush([]byte(text))
	// The stream is a child of the body and must be gone before OutgoingBodyFinish.
	stream.Drop()
	wasi_http_types.OutgoingBodyFinish(body, witTypes.None[*wasi_http_types.Fields]())
}
