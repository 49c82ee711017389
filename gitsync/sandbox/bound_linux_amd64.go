package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// refusedHere are older names of what [refused] has, which other architectures lack.
var refusedHere = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_RENAMEAT,
	unix.SYS_LINK, unix.SYS_SYMLINK,
	unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_MKNOD, unix.SYS_CHMOD, unix.SYS_CHOWN,
}
