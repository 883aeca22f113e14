// Go's own client against a node: requests, bodies, streams, connections that
// are used again.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func expect(condition bool, format string, arguments ...any) {
	if !condition {
		check(fmt.Errorf(format, arguments...))
	}
}

func text(response *http.Response, err error) string {
	check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err)
	expect(response.StatusCode == 200, "status %s: %s", response.Status, body)
	return string(body)
}

func main() {
	url := os.Args[1]
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}

	expect(text(client.Get(url+"/http-probe/hello")) == "hello\n", "not hello")

	// The connection is used again, also after a body that nobody read there.
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	request, err := http.NewRequest("GET", url+"/http-probe/hello", nil)
	check(err)
	text(client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace))))
	expect(reused, "the connection was not used again")

	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	echoed := text(client.Post(url+"/http-probe/echo", "text/x", bytes.NewReader(large)))
	expect(strings.HasSuffix(echoed, string(large)), "another body came back")

	// In chunks, with a word first.
	request, err = http.NewRequest("PUT", url+"/http-probe/echo", io.MultiReader(bytes.NewReader(large)))
	check(err)
	request.Header.Set("Expect", "100-continue")
	request.Trailer = http.Header{"X-Sum": {"1"}}
	echoed = text(client.Do(request))
	expect(strings.HasSuffix(echoed, string(large)), "another body came back in chunks")

	response, err := client.Get(url + "/drip/")
	check(err)
	lines := bufio.NewScanner(response.Body)
	seen, first := 0, time.Time{}
	for lines.Scan() {
		if seen++; seen == 1 {
			first = time.Now()
		}
	}
	check(lines.Err())
	expect(seen == 5 && time.Since(first) > 200*time.Millisecond, "%d lines in %s", seen, time.Since(first))

	response, err = client.Head(url + "/http-probe/hello")
	check(err)
	expect(response.StatusCode == 200, "HEAD: %s", response.Status)

	var all sync.WaitGroup
	for range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			expect(text(client.Get(url+"/http-probe/count")) == "1\n", "an instance was used again")
		}()
	}
	all.Wait()

	client.Transport = http2Transport()
	expect(text(client.Get(url+"/http-probe/hello")) == "hello\n", "not hello by HTTP/2")
	echoed = text(client.Post(url+"/http-probe/echo", "text/x", bytes.NewReader(large)))
	expect(strings.HasSuffix(echoed, string(large)), "another body came back by HTTP/2")
	response, err = client.Get(url + "/http-probe/trailers")
	text(response, err)
	expect(response.Trailer.Get("X-Trailer") == "after the body", "trailers: %v", response.Trailer)
	fmt.Println("requests, bodies and streams, by HTTP/1.1 and HTTP/2")
}

func http2Transport() http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}
