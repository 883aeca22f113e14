// Command cri asks a runtime of containers by the Container Runtime Interface, as kubelet does: one call a command.
//
//	cri SOCKET pull IMAGE
//	cri SOCKET run POD.json HANDLER            prints the pod's id
//	cri SOCKET address POD
//	cri SOCKET create POD CONTAINER.json POD.json
//	cri SOCKET start|stop|remove CONTAINER
//	cri SOCKET exec CONTAINER COMMAND…         prints its output, and ends as it ended
//	cri SOCKET status|stats CONTAINER          prints JSON
//	cri SOCKET memory CONTAINER BYTES          gives it another limit
//	cri SOCKET stop-pod|remove-pod POD
//	cri SOCKET pods|containers                 prints ids
//	cri SOCKET remove-image IMAGE
//	cri - pause                                does nothing until it is told to end: a pod's first container
//	cri - get URL                              prints what is there
//	cri - fill                                 takes memory until it is ended
//	cri - load URL SECONDS CONNECTIONS PAUSE [fresh]
//	                                           asks all that time, or until it is told to end, and prints JSON of what came;
//	                                           fresh: over another connection each time
//
// The files of JSON have the messages PodSandboxConfig and ContainerConfig.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is longer than any call that the runtime itself gives up.
const patience = 2 * time.Minute

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) < 2 {
		return 0, fmt.Errorf("usage: cri SOCKET COMMAND [ARGUMENT…]")
	}
	switch args[1] {
	case "pause":
		// The first process of its namespace is sent nothing that it has not asked for.
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
		<-ended
		return 0, nil
	case "get":
		return 0, get(args[2:])
	case "load":
		return 0, load(args[2:])
	case "fill":
		for kept := [][]byte{}; ; {
			kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
		}
	}
	connection, err := grpc.NewClient("unix://"+args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	runtime, images := cri.NewRuntimeServiceClient(connection), cri.NewImageServiceClient(connection)
	command, rest := args[1], args[2:]
	arg := func(n int) string {
		if n < len(rest) {
			return rest[n]
		}
		return ""
	}
	switch command {
	case "pull":
		_, err = images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: arg(0)}})
	case "remove-image":
		_, err = images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: arg(0)}})
	case "run":
		pod := &cri.PodSandboxConfig{}
		if err = read(arg(0), pod); err != nil {
			return 0, err
		}
		answer, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: arg(1)})
		if err == nil {
			fmt.Println(answer.PodSandboxId)
		}
		return 0, err
	case "address":
		answer, err := runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: arg(0)})
		if err == nil {
			fmt.Println(answer.Status.Network.Ip)
		}
		return 0, err
	case "create":
		pod, container := &cri.PodSandboxConfig{}, &cri.ContainerConfig{}
		if err = read(arg(1), container); err == nil {
			err = read(arg(2), pod)
		}
		if err != nil {
			return 0, err
		}
		request := &cri.CreateContainerRequest{PodSandboxId: arg(0), Config: container, SandboxConfig: pod}
		answer, err := runtime.CreateContainer(ctx, request)
		if err == nil {
			fmt.Println(answer.ContainerId)
		}
		return 0, err
	case "start":
		_, err = runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: arg(0)})
	case "stop":
		_, err = runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: arg(0), Timeout: 10})
	case "remove":
		_, err = runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: arg(0)})
	case "exec":
		answer, err := runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: arg(0), Cmd: rest[1:], Timeout: 60})
		if err != nil {
			return 0, err
		}
		os.Stdout.Write(answer.Stdout)
		os.Stderr.Write(answer.Stderr)
		return int(answer.ExitCode), nil
	case "status":
		answer, err := runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: arg(0)})
		if err != nil {
			return 0, err
		}
		return 0, write(answer.Status)
	case "stats":
		answer, err := runtime.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: arg(0)})
		if err != nil {
			return 0, err
		}
		return 0, write(answer.Stats)
	case "memory":
		limit, err := strconv.ParseInt(arg(1), 10, 64)
		if err != nil {
			return 0, err
		}
		linux := &cri.LinuxContainerResources{MemoryLimitInBytes: limit}
		_, err = runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: arg(0), Linux: linux})
		return 0, err
	case "stop-pod":
		_, err = runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: arg(0)})
	case "remove-pod":
		_, err = runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: arg(0)})
	case "pods":
		answer, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		for _, pod := range answer.GetItems() {
			fmt.Println(pod.Id)
		}
		return 0, err
	case "containers":
		answer, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
		for _, container := range answer.GetContainers() {
			fmt.Println(container.Id)
		}
		return 0, err
	default:
		err = fmt.Errorf("there is no command %q", command)
	}
	return 0, err
}

func get(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: cri - get URL")
	}
	answer, err := http.Get(args[0])
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

func read(path string, message proto.Message) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, message)
}

func write(message proto.Message) error {
	text, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return nil
}
