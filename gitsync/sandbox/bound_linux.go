//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limit bounds the memory of this process. RLIMIT_DATA counts what is written to, and
// not what Go only reserves, as RLIMIT_AS would.
func limit(bytes int64) error {
	debug.SetMemoryLimit(bytes / 4 * 3)
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}) //nolint:gosec // a size is positive
}

// residentOf returns how many bytes of memory a process has; 0 where that is not known.
func residentOf(pid int) int64 {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// ticks is in how many parts /proc divides a second, on all architectures.
const ticks = 100

// cpuOf returns how much CPU time a process has used, all of its threads, and whether that
// is known (proc_pid_stat(5): utime and stime).
func cpuOf(pid int) (time.Duration, bool) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The name of the program may have anything in it, and ends with the last parenthesis.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err == nil && err2 == nil
}

// refused are the system calls that a sealed worker does not get: sockets, programs,
// files, other processes. See also [refusedHere].
var refused = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT,
	unix.SYS_SYMLINKAT, unix.SYS_MKDIRAT, unix.SYS_MKNODAT,
	unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_TRUNCATE, unix.SYS_CHROOT, unix.SYS_CHDIR,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL,
	unix.SYS_USERFAULTFD, unix.SYS_MEMFD_CREATE,
}

// seal has the kernel refuse this process, in all its threads, what [refused] names,
// for good: by a seccomp filter (seccomp(2)). A call of another architecture's table is
// refused, too.
func seal() error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atMost = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K

		number, architecture = 0, 4 // offsets in struct seccomp_data
		foreign              = 0x40000000
		refuse               = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	filter := []unix.SockFilter{
		{Code: load, K: architecture},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: answer, K: refuse},
		{Code: load, K: number},
		{Code: atMost, K: foreign, Jf: 1},
		{Code: answer, K: refuse},
	}
	for _, list := range [][]uint32{refused, refusedHere} {
		for _, call := range list {
			filter = append(filter, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: answer, K: refuse})
		}
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // some hundred
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("setting a seccomp filter: %w", errno)
	}
	return nil
}
