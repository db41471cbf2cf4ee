// A Kubernetes node for tests: it runs the first container of each pod as a process of this machine, in new namespaces
// for mounts and processes, with the pod's home directory mounted. It fetches no images. Commands of `kubectl exec` run
// in the same namespaces. It is also the scheduler: it counts GPUs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	streaming "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	nodeName = "node-1"
	gpu      = core.ResourceName("nvidia.com/gpu")
	// An image whose name contains this cannot be fetched.
	missingImage = "missing"
)

type container struct {
	command *exec.Cmd
	ended   chan struct{}
	started meta.Time
	stops   sync.Once
}

type node struct {
	client     *kubernetes.Clientset
	directory  string
	gpus       int64
	mutex      sync.Mutex
	containers map[types.UID]*container
}

func main() {
	config := flag.String("kubeconfig", "", "how the API server is reached")
	directory := flag.String("directory", "", "home directories of pods")
	gpus := flag.Int64("gpus", 2, "number of GPUs")
	flag.Parse()
	if err := run(*config, *directory, *gpus); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, directory string, gpus int64) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n := &node{client: client, directory: directory, gpus: gpus, containers: map[types.UID]*container{}}
	// The API server does not check the certificate of a node without --kubelet-certificate-authority.
	server := httptest.NewTLSServer(http.HandlerFunc(n.serve))
	defer server.Close()
	ctx := context.Background()
	if err := n.register(ctx, server.Listener.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	fmt.Println("node ready")
	for ; ; time.Sleep(200 * time.Millisecond) {
		pods, err := client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
		if err != nil {
			// The API server is gone: the test has ended.
			return err
		}
		for i := range pods.Items {
			if err := n.reconcile(ctx, &pods.Items[i], pods.Items); err != nil {
				fmt.Fprintln(os.Stderr, pods.Items[i].Name, err)
			}
		}
	}
}

func (n *node) register(ctx context.Context, port int) error {
	quantity := core.ResourceList{gpu: *resource.NewQuantity(n.gpus, resource.DecimalSI)}
	made, err := n.client.CoreV1().Nodes().Create(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: nodeName}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = core.NodeStatus{
		Capacity:        quantity,
		Allocatable:     quantity,
		Addresses:       []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: core.NodeDaemonEndpoints{KubeletEndpoint: core.DaemonEndpoint{Port: int32(port)}},
		Conditions:      []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}},
	}
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, made, meta.UpdateOptions{})
	return err
}

func gpusOf(pod *core.Pod) int64 {
	limit := pod.Spec.Containers[0].Resources.Limits[gpu]
	return limit.Value()
}

func isOver(pod *core.Pod) bool {
	return pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
}

func (n *node) reconcile(ctx context.Context, pod *core.Pod, all []core.Pod) error {
	n.mutex.Lock()
	running := n.containers[pod.UID]
	n.mutex.Unlock()
	switch {
	case pod.DeletionTimestamp != nil:
		return n.finish(ctx, pod, running)
	case isOver(pod):
		return nil
	case pod.Spec.NodeName == "":
		return n.schedule(ctx, pod, all)
	case running == nil && strings.Contains(pod.Spec.Containers[0].Image, missingImage):
		waiting := core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
		return n.report(ctx, pod, core.PodPending, waiting)
	case running == nil:
		return n.start(ctx, pod)
	}
	select {
	case <-running.ended:
		code := running.command.ProcessState.ExitCode()
		phase := core.PodSucceeded
		if code != 0 {
			phase = core.PodFailed
		}
		terminated := &core.ContainerStateTerminated{ExitCode: int32(code), Reason: "Completed"}
		return n.report(ctx, pod, phase, core.ContainerState{Terminated: terminated})
	default:
		limit := pod.Spec.ActiveDeadlineSeconds
		if limit != nil && time.Since(running.started.Time) > time.Duration(*limit)*time.Second {
			running.stop(0)
		}
		return nil
	}
}

func (n *node) schedule(ctx context.Context, pod *core.Pod, all []core.Pod) error {
	free := n.gpus
	for i := range all {
		if all[i].Spec.NodeName != "" && !isOver(&all[i]) {
			free -= gpusOf(&all[i])
		}
	}
	if gpusOf(pod) > free {
		if len(pod.Status.Conditions) > 0 {
			return nil
		}
		pod.Status.Conditions = []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Reason: "Unschedulable",
			Message: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
		}}
		_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, meta.UpdateOptions{})
		return err
	}
	target := core.ObjectReference{Kind: "Node", Name: nodeName}
	binding := &core.Binding{ObjectMeta: meta.ObjectMeta{Name: pod.Name}, Target: target}
	return n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, meta.CreateOptions{})
}

func (n *node) report(ctx context.Context, pod *core.Pod, phase core.PodPhase, state core.ContainerState) error {
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []core.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
		Ready: state.Running != nil, State: state,
	}}
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, meta.UpdateOptions{})
	return err
}

// start runs the container. Its first process has the number 1, as in a real one.
func (n *node) start(ctx context.Context, pod *core.Pod) error {
	spec := pod.Spec.Containers[0]
	home := filepath.Join(n.directory, string(pod.UID))
	if err := os.MkdirAll(home, 0o777); err != nil {
		return err
	}
	at := spec.VolumeMounts[0].MountPath
	script := `mount --make-rprivate / && mount --bind "$1" "$2" && shift 2 && cd / && exec "$@"`
	flags := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "bash", "-c", script, "container", home, at}
	command := exec.Command("unshare", append(append(flags, spec.Command...), spec.Args...)...)
	command.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, variable := range spec.Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	log, err := os.Create(filepath.Join(n.directory, pod.Name+".log"))
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	made := &container{command: command, ended: make(chan struct{}), started: meta.Now()}
	go func() {
		_ = command.Wait()
		_ = log.Close()
		close(made.ended)
	}()
	n.mutex.Lock()
	n.containers[pod.UID] = made
	n.mutex.Unlock()
	return n.report(ctx, pod, core.PodRunning, core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: made.started}})
}

// first returns the number of the container's first process on this machine; 0 if it has ended.
func (c *container) first() int {
	parent := strconv.Itoa(c.command.Process.Pid)
	children, _ := os.ReadFile(filepath.Join("/proc", parent, "task", parent, "children"))
	for _, child := range strings.Fields(string(children)) {
		number, _ := strconv.Atoi(child)
		return number
	}
	return 0
}

// stop asks the first process to end, and ends it after the grace period.
func (c *container) stop(grace time.Duration) {
	c.stops.Do(func() {
		if first := c.first(); first != 0 {
			_ = syscall.Kill(first, syscall.SIGTERM)
		}
		go func() {
			select {
			case <-c.ended:
			case <-time.After(grace):
				_ = c.command.Process.Kill()
			}
		}()
	})
}

func (n *node) finish(ctx context.Context, pod *core.Pod, running *container) error {
	if running != nil {
		grace := int64(30)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		running.stop(time.Duration(grace) * time.Second)
		select {
		case <-running.ended:
		default:
			return nil
		}
		n.mutex.Lock()
		delete(n.containers, pod.UID)
		n.mutex.Unlock()
		_ = os.RemoveAll(filepath.Join(n.directory, string(pod.UID)))
	}
	now := int64(0)
	return n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
}

// serve answers /exec/NAMESPACE/POD/CONTAINER, which the API server calls.
func (n *node) serve(w http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if len(parts) != 4 || parts[0] != "exec" {
		http.NotFound(w, request)
		return
	}
	pod, err := n.client.CoreV1().Pods(parts[1]).Get(request.Context(), parts[2], meta.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := streaming.NewOptions(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command := request.URL.Query()["command"]
	streaming.ServeExec(w, request, n, pod.Name, string(pod.UID), parts[3], command, options, 4*time.Hour, 30*time.Second,
		streaming.SupportedStreamingProtocols)
}

// ExecInContainer runs a command beside the container's process. A detached child may keep the output open.
func (n *node) ExecInContainer(ctx context.Context, _ string, uid string, _ string, cmd []string, in io.Reader,
	out, errs io.WriteCloser, _ bool, _ <-chan streaming.TerminalSize, _ time.Duration) error {
	n.mutex.Lock()
	running := n.containers[types.UID(uid)]
	n.mutex.Unlock()
	if running == nil || running.first() == 0 {
		return errors.New("the container does not run")
	}
	target := strconv.Itoa(running.first())
	flags := []string{"--target", target, "--mount", "--pid", "--wd=/", "--"}
	command := exec.CommandContext(ctx, "nsenter", append(flags, cmd...)...)
	environment, err := os.ReadFile(filepath.Join("/proc", target, "environ"))
	if err != nil {
		return err
	}
	command.Env = strings.Split(strings.TrimRight(string(environment), "\x00"), "\x00")
	command.Stdin, command.Stdout, command.Stderr = in, out, errs
	command.WaitDelay = time.Second
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}
