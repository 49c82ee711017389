package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are older names of what [refused] has, which other architectures lack.
var refusedHere = []uint32{unix.SYS_RENAMEAT}
