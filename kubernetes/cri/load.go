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
	FailedAt  []int64        `json:"failed_at_ms,omitempty"` // The first of them, since the beginning.
	PerSecond int            `json:"per_second"`
	P50Micros int64          `json:"p50_us"`
	P99Micros int64          `json:"p99_us"`
	MaxMicros int64          `json:"max_us"`
}

func load(args []string) error {
	usage := fmt.Errorf("usage: cri - load URL SECONDS CONNECTIONS PAUSE [fresh]")
	if len(args) < 4 {
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
	pause, err := time.ParseDuration(args[3])
	if err != nil {
		return usage
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	defer cancel()

	var mutex sync.Mutex
	var asking sync.WaitGroup
	took, failures, failedAt := []time.Duration{}, map[string]int{}, []int64{}
	start := time.Now()
	for range connections {
		asking.Go(func() {
			client := &http.Client{
				Transport: &http.Transport{DisableKeepAlives: len(args) > 4},
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
					failedAt = append(failedAt, time.Since(start).Milliseconds())
				}
				mutex.Unlock()
				time.Sleep(pause)
			}
		})
	}
	asking.Wait()
	result := report{
		Answers:   len(took),
		Failures:  failures,
		FailedAt:  failedAt[:min(len(failedAt), 10)],
		PerSecond: int(float64(len(took)) / time.Since(start).Seconds()),
	}
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
	var body []byte
	answer, err := client.Get(url)
	if err == nil {
		body, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	if err != nil {
		words := strings.Split(err.Error(), ": ")
		return words[len(words)-1]
	}
	if answer.StatusCode != http.StatusOK {
		// A node says in a title what was the matter.
		var problem struct{ Title, Detail string }
		_ = json.Unmarshal(body, &problem)
		return strings.TrimSpace(answer.Status + " " + problem.Title + " " + problem.Detail)
	}
	return ""
}
