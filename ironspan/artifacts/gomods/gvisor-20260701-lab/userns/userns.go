// Copyright (c) the ironspan developers
// SPDX-License-Identifier: Apache-2.0

// Package userns answers yes to "does this process run in a user namespace?".
//
// The shim lowers its own OOM score to -999 unless it believes that it runs in a user namespace, and gives up
// when the kernel refuses. A lab machine without CAP_SYS_RESOURCE refuses, so the lab's shim is built with this
// package in the place of the real one. It is never meant for production: there the shim must be protected.
package userns

// RunningInUserNS always says yes.
func RunningInUserNS() bool { return true }
