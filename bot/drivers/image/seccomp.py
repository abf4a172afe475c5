"""The sandbox's seccomp profile: the engine project's default, tightened.

`moby-default.json` is moby's `profiles/seccomp/default.json` (20.10.24, Apache-2.0), unchanged; a newer one can be put
in its place. Run `python -m bot.drivers.image.seccomp` to see the profile that is made of it.
"""

from __future__ import annotations

import copy
import functools
import json
from importlib.resources import files
from typing import Any

# AF_UNIX, AF_INET, AF_INET6: what programs expect to exist. AF_VSOCK reaches the host of a virtual machine, AF_NETLINK
# and AF_ALG are kernel attack surface (https://github.com/moby/moby/pull/44562, https://github.com/moby/moby/pull/52494).
FAMILIES = (1, 2, 10)

REMOVED = frozenset(
    {
        "socket",  # comes back below, one rule a family
        "socketcall",  # the 32-bit way round the rule on families (https://github.com/moby/moby/pull/53551)
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "kcmp",
        "modify_ldt",
        "userfaultfd",
        "bpf",
        "perf_event_open",
        "add_key",
        "keyctl",
        "request_key",
        "name_to_handle_at",
        "quotactl",
        "lookup_dcookie",
        # What these make outlives its makers, and no killing of processes gives the memory back.
        "shmget",
        "msgget",
        "semget",
        "ipc",  # the 32-bit way to all three
    }
)


def tightened(default: dict[str, Any]) -> dict[str, Any]:
    """Give `default` without what a shell for strangers does not need."""
    made = copy.deepcopy(default)
    # One architecture: a 32-bit call on a 64-bit machine would be judged by other numbers than the ones meant.
    made["archMap"] = [{"architecture": entry["architecture"]} for entry in default["archMap"]]
    rules = []
    for rule in made["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in REMOVED]
        # Rules that need a capability can never apply: every capability is dropped. They go, so that a mistake
        # elsewhere does not bring them back.
        if rule["names"] and not (rule.get("includes") or {}).get("caps"):
            rules.append(rule)
    rules += [
        {
            "names": ["socket"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}],
        }
        for family in FAMILIES
    ]
    made["syscalls"] = rules
    return made


@functools.cache
def profile() -> dict[str, Any]:
    """Give the profile that every sandbox runs under."""
    return tightened(json.loads((files(__package__) / "moby-default.json").read_text("utf-8")))


if __name__ == "__main__":
    print(json.dumps(profile(), indent=1))
