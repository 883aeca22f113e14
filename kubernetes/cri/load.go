package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What came of a load. A request that was under way at the end is waited for.
type report struct {
	Answers   int            `json:"answers"`
	Failed    int            `json:"failed"`
	Failures  map[string]int `json:"failures,omitempty"`
	PerSecond int            `json:"per_second"`
	P50Micros int64          `json:"p50_us"`
	P99Micros int64          `json:"p99_us"`
	MaxMicros int64          `json:"max_us"`
}

func load(args []string) error {
	usage := fmt.Errorf("usage: cri - load URL SECONDS CONNECTIONS [fresh]")
	if len(args) < 3 {
		return usage
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return usage
	}
	connections, err := strconv.Atoi(args[2])
	if err != nil {
		return usage
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	defer cancel()

	var mutex sync.Mutex
	var asking sync.WaitGroup
	took, failures := []time.Duration{}, map[string]int{}
	began := time.Now()
	for range connections {
		asking.Go(func() {
			client := &http.Client{
				Transport: &http.Transport{DisableKeepAlives: len(args) > 3},
				Timeout:   10 * time.Second,
			}
			for ctx.Err() == nil {
				began := time.Now()
				failure := ask(client, args[0])
				mutex.Lock()
				if failure == "" {
					took = append(took, time.Since(began))
				} else {
					failures[failure]++
				}
				mutex.Unlock()
			}
		})
	}
	asking.Wait()
	result := report{Answers: len(took), Failures: failures, PerSecond: int(float64(len(took)) / time.Since(began).Seconds())}
	for _, count := range failures {
		result.Failed += count
	}
	if len(took) > 0 {
		slices.Sort(took)
		result.P50Micros = took[len(took)/2].Microseconds()
		result.P99Micros = took[len(took)*99/100].Microseconds()
		result.MaxMicros = took[len(took)-1].Microseconds()
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// Why there was no good answer. Ports are left out, so that equal failures count as one.
func ask(client *http.Client, url string) string {
	answer, err := client.Get(url)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	if err != nil {
		words := strings.Split(err.Error(), ": ")
		return words[len(words)-1]
	}
	if answer.StatusCode != http.StatusOK {
		return answer.Status
	}
	return ""
}
