// A function as a CGI program (RFC 3875) in Go, for WASI preview 1.
package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
)

// Stays at 1: every request runs the program from its start.
var count int

func main() {
	count++
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()

	// Headers first; an empty line ends them.
	fmt.Fprint(out, "Content-Type: text/plain; charset=utf-8\n\n")

	fmt.Fprintf(out, "%s %s\n", os.Getenv("REQUEST_METHOD"), os.Getenv("PATH_INFO"))
	fmt.Fprintf(out, "query %s\n", os.Getenv("QUERY_STRING"))
	// The header X-Echo of the request.
	fmt.Fprintf(out, "x-echo %s\n", os.Getenv("HTTP_X_ECHO"))
	fmt.Fprintf(out, "random %s\n", rand.Text())
	fmt.Fprintf(out, "count %d\n\n", count)

	// Standard input is the body of the request.
	if _, err := io.Copy(out, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "reading the body:", err)
		os.Exit(1)
	}
}
