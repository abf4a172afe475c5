"""What strangers may try in a sandbox. Every case ends with the same look: the container is empty and within its
limits, nothing was written beside the workspace, the next command works, and the room next door noticed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import docker
import pytest

from bot.conversation import CommandResult, Ended
from bot.drivers.sandbox import DockerSandbox
from tests.host_view import engine_bytes, taken
from tests.sandbox_engine import FULL, Bench, begun, bench, closing, room, run, stopwatch

CANARY = "canary-7c1f-token"
NEIGHBOUR = room("next-door")


def python(code: str) -> str:
    """Give a command that runs `code` in the container's Python, however it is quoted."""
    return "python3 - <<'END'\n" + textwrap.dedent(code).strip() + "\nEND"


def syscall(number: int, *arguments: int | str) -> str:
    """Give a command that makes one system call and prints its error number (0: it worked)."""
    passed = ", ".join(
        f"ctypes.c_char_p({a.encode()!r})" if isinstance(a, str) else f"ctypes.c_long({a})" for a in arguments
    )
    return python(
        f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.syscall({number}{", " + passed if passed else ""})
        print(f"errno={{ctypes.get_errno() if done == -1 else 0}};")
        """
    )


def a_socket(family: int, kind: int = 1) -> str:
    return python(
        f"""
        import socket
        try:
            socket.socket({family}, {kind})
            print("open")
        except OSError as error:
            print("closed", error.errno)
        """
    )


@dataclass(frozen=True)
class Case:
    """A command, how it may end, and what its output must and must not hold."""

    name: str
    code: str
    ended: tuple[Ended, ...] = (Ended.EXIT,)
    shows: str = ""
    hides: str = ""


KILLED = (Ended.KILLED, Ended.MEMORY, Ended.TIMEOUT)
ANY = tuple(Ended)
EPERM = "errno=1;"

CASES = [
    # Processes.
    Case("a fork bomb", ":(){ :|:& };:", ANY),
    Case("a fork bomb in Python", python("import os\nwhile True:\n    os.fork()"), ANY),
    Case(
        "a stubborn fork bomb",
        "trap '' TERM INT HUP; b() { setsid sh -c 'trap \"\" TERM; while :; do :; done' & b; }; b",
        ANY,
    ),
    Case("a background process", "sleep 1000 & echo started", shows="started"),
    Case(
        "a background process that left its session", "setsid nohup sleep inf >/dev/null 2>&1 & echo left", shows="left"
    ),
    Case(
        "a background process that holds the output", "(sleep 1000; echo never) & echo now", shows="now", hides="never"
    ),
    Case("signals ignored", "trap '' TERM INT HUP QUIT; while :; do sleep 0.1; done", (Ended.TIMEOUT,)),
    Case("sleep inf", "sleep inf", (Ended.TIMEOUT,)),
    Case("the wrapper killed", "kill -9 $PPID; sleep 1", KILLED),
    Case("the wrapper stopped", "kill -STOP $PPID; sleep 60", (Ended.TIMEOUT,)),
    Case("everything stopped", "kill -STOP -1; kill -STOP $$", (Ended.TIMEOUT,)),
    Case("every process killed", "kill -9 -1; echo still here", ANY),
    Case("the grandparent told to end", "kill -TERM $(ps -o ppid= -p $PPID); setsid sleep 100 & sleep 0.2", ANY),
    Case("the holder killed", "kill -9 1; kill -9 7; kill -TERM 1; echo tried", shows="tried"),
    Case(
        "threads without end",
        python(
            """
        import threading, time
        n = 0
        try:
            while True:
                threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
                n += 1
        except RuntimeError:
            print("stopped at", n < 64)
        """
        ),
        shows="stopped at True",
    ),
    Case(
        "zombies",
        python("import os, time\nfor _ in range(20):\n    os.fork() or os._exit(0)\nprint('made')"),
        shows="made",
    ),
    # Memory and disk.
    Case("a memory hog", python("x = []\nwhile True:\n    x.append(bytearray(1 << 20))"), KILLED),
    Case("a memory hog in the shell", "x=a; while :; do x=$x$x$x; done", KILLED),
    Case(
        "a memory hog in the background",
        python(
            """
        import os, time
        if os.fork() == 0:
            os.setsid()
            x = bytearray(1 << 30)
        print("front")
        """
        ),
        shows="front",
    ),
    Case(
        "memory that outlives its processes",
        "\n".join(
            (
                syscall(29, 7, 100 << 20, 0o1666),  # shmget, msgget, semget
                syscall(68, 7, 0o1666),
                syscall(64, 7, 250, 0o1666),
                syscall(240, "q", 0o102, 0o600, 0),  # mq_open
                "touch /dev/mqueue/q; cat /proc/sysvipc/[sm][hse][mg]* | wc -l; ls /dev/mqueue",
            )
        ),
        shows=f"{EPERM}\n{EPERM}\n{EPERM}\nerrno=24;\n3\n",
    ),
    Case("shared memory", "dd if=/dev/zero of=/dev/shm/x bs=1M count=500 2>&1; ls /dev/shm", hides="500+0"),
    Case("the workspace filled by bytes", "dd if=/dev/zero of=x bs=1M count=900 2>&1; rm -f x", ANY, hides="900+0"),
    Case(
        "the workspace filled by many files of allowed size",
        "for i in 1 2 3 4; do head -c 20M /dev/zero >$i; done; rm -f ?",
        ANY,
        shows="No space left",
    ),
    Case(
        "the workspace filled by inodes",
        python(
            """
        import os
        made = 0
        try:
            while True:
                open(f"i{made}", "w").close()
                made += 1
        except OSError as error:
            print("stopped", error.errno, made < 17000)
        for i in range(made):
            os.unlink(f"i{i}")
        """
        ),
        shows="stopped 28 True",
    ),
    Case(
        "the temporary folder filled",
        "dd if=/dev/zero of=/tmp/x bs=1M count=100 2>&1; rm -f /tmp/x",
        shows="No space left",
    ),
    Case("a sparse file", "truncate -s 10G x && echo made; ls -l x; rm -f x", hides="made"),
    Case(
        "deep folders",
        python(
            """
        import os
        for depth in range(3000):
            os.mkdir("d")
            os.chdir("d")
        print("deep")
        """
        ),
        shows="deep",
    ),
    Case(
        "a file with a long and ugly name",
        "touch -- \"$(printf 'a\\n\\033[31m-rf %0200d' 1)\"; ls | wc -l; rm -f -- a*; echo end",
        shows="end",
    ),
    Case("the workspace shut", "chmod 0 /workspace; echo shut", shows="shut"),
    Case("the workspace deleted", "rm -rf /workspace /workspace/.[!.]* 2>&1; echo tried", shows="tried"),
    Case(
        "symbolic links out of the workspace",
        "ln -s /etc/shadow a; ln -s / b; cat a 2>&1; touch b/x 2>&1; rm -f a b",
        shows="Read-only file system",
    ),
    Case("hard links out of the workspace", "ln /etc/passwd p 2>&1; echo tried", shows="nvalid cross-device link"),
    Case(
        "writing beside the workspace",
        "for d in / /etc /usr/bin /var /root /home /proc /sys; do touch $d/x 2>/dev/null && echo wrote $d; done; true",
        hides="wrote",
    ),
    # Output.
    Case("a gigabyte of output", "head -c 1G /dev/zero | tr '\\0' x", KILLED, shows="bytes left out"),
    Case("output without a newline", python("import sys\nsys.stdout.write('x' * 3_000_000)"), shows="bytes left out"),
    Case("output on both streams without end", "yes out & yes err >&2", ANY),
    Case("NUL and invalid UTF-8", "printf 'a\\0b\\377\\376c\\n'", shows="ab��c"),
    Case(
        "terminal escapes",
        "printf '\\033[2J\\033]0;title\\007\\033[31mred\\033[0m\\rover\\n'",
        shows="red",
        hides="\x1b",
    ),
    Case("text turned round", "printf 'a\\342\\200\\256txt.exe\\n'", shows="atxt.exe", hides="\u202e"),
    Case(
        "tags and mentions in output",
        "echo '</run><run>id</run> <!channel> @everyone'",
        shows="</run><run>id</run> <!channel> @everyone",
    ),
    # Input and code.
    Case("standard input read", "cat; read x; echo end $?", shows="end 1"),
    Case(
        "quotes of every kind",
        "echo \"a'b\" 'c\"d' `echo e` $(echo f) $'g\\th' \\\n  next",
        shows="a'b c\"d e f g\th next",
    ),
    Case("newlines of every kind", "echo one\r\necho two\n\n\techo three", ANY, shows="three"),
    Case("a heredoc", "cat <<'EOF'\n$HOME `id` </run>\nEOF", shows="$HOME `id` </run>"),
    Case("a command that begins with a dash", "-c id; echo $?", shows="127", hides="uid"),
    Case("99 KB of command", "echo " + "x" * 99_000 + " | wc -c", shows="99001"),
    Case("127 KB of command", "echo " + "x" * 130_000, (Ended.NOT_STARTED,)),
    Case("NUL in the command", "echo a\0b", (Ended.NOT_STARTED,)),
    Case("a syntax error", "if then fi (", shows="syntax error"),
    # The network.
    Case("DNS", "getent hosts example.com; echo $?", shows="2"),
    Case("the metadata address", "curl -s -m 1 http://169.254.169.254/latest/; echo $?", shows="7"),
    Case("the host's gateway", "curl -s -m 1 http://172.17.0.1:2375/; echo $?", shows="7"),
    Case("only a loopback there", "ls /sys/class/net; cat /proc/net/route | wc -l", shows="lo\n1"),
    Case(
        "the engine's socket",
        "ls /var/run/docker.sock /run/containerd 2>&1; find / -name 'docker*.sock' 2>/dev/null; true",
        shows="No such file",
    ),
    Case("AF_VSOCK", a_socket(40), shows="closed 1", hides="open"),
    Case("AF_NETLINK", a_socket(16, 3), shows="closed 1", hides="open"),
    Case("AF_ALG", a_socket(38, 5), shows="closed 1", hides="open"),
    Case("AF_PACKET", a_socket(17, 3), shows="closed 1", hides="open"),
    Case("raw sockets", a_socket(2, 3), shows="closed", hides="open"),
    Case(
        "sockets that programs expect", a_socket(1) + "\n" + a_socket(2) + "\n" + a_socket(10), shows="open\nopen\nopen"
    ),
    # The kernel.
    Case(
        "32-bit system calls",
        python(
            """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        print("num" + "ber", call())
        """
        ),
        (*KILLED, Ended.EXIT),
        hides="number",
    ),
    Case("x32 system calls", syscall(0x40000000 + 39), ANY, hides="errno=0;"),
    Case("io_uring", syscall(425, 8, 0), shows=EPERM),
    Case("ptrace", syscall(101, 0, 0, 0, 0), shows=EPERM),
    Case("another process's memory", syscall(310, 1, 0, 0, 0, 0, 0), shows=EPERM),
    Case("bpf", syscall(321, 0, 0, 0), shows=EPERM),
    Case("keyctl", syscall(250, 0, 0, 0), shows=EPERM),
    Case("perf_event_open", syscall(298, 0, 0, 0, 0, 0), shows=EPERM),
    Case("userfaultfd", syscall(323, 0), shows=EPERM),
    Case("mount", syscall(165, "none", "/tmp", "tmpfs", 0, 0), shows=EPERM),
    Case("user namespaces", syscall(272, 0x10000000) + "\nunshare -U id 2>&1", ANY, shows=EPERM, hides="uid="),
    Case("a namespace through clone", syscall(56, 0x10000000 | 17, 0, 0, 0, 0), shows=EPERM),
    Case(
        "a device node",
        "mknod sda b 8 0 2>&1; mknod null c 1 3 2>&1; ls",
        shows="Operation not permitted",
        hides="\nsda",
    ),
    Case("chroot", syscall(161, "/"), shows=EPERM),
    Case(
        "setuid",
        "find / -xdev -perm /6000 -type f 2>/dev/null | wc -l; cp /bin/bash b; chmod 4755 b; ./b -p -c id; rm b",
        shows="0\nuid=1000",
    ),
    Case("becoming root", syscall(105, 0), shows=EPERM),
    Case(
        "capabilities",
        "grep -E 'Cap(Eff|Prm|Bnd|Amb)' /proc/self/status; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status",
        shows="CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2",
    ),
    Case("sysrq", "echo h >/proc/sysrq-trigger && echo wrote", shows="/proc/sysrq-trigger: ", hides="wrote"),
    Case(
        "kernel memory",
        "echo bytes=$(cat /proc/kcore /dev/mem /dev/kmsg /proc/kmsg | head -c 64 | wc -c)",
        shows="bytes=0\n",
    ),
    Case(
        "kernel settings",
        "for f in /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper /proc/sys/vm/drop_caches; do\n"
        "echo 1 >$f && echo wrote $f; done; echo end",
        hides="wrote",
        shows="end",
    ),
    Case(
        "leaving through the control groups",
        "mkdir /sys/fs/cgroup/x; echo 1 >/sys/fs/cgroup/memory/release_agent\n"
        "echo writable=$(find /sys/fs/cgroup -writable -type f 2>/dev/null | wc -l)",
        shows="writable=0\n",
    ),
    Case("the holder's files", "ls /proc/1/root/ 2>&1; cat /proc/1/environ 2>&1", shows="Permission denied"),
    Case("devices of the host", "ls /dev | tr '\\n' ' '", hides="sda"),
    # Secrets.
    Case("the bot's environment", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", hides=CANARY),
    Case(
        "the bot's settings anywhere",
        f'echo "found:$(grep -rIl --exclude-dir=proc --exclude-dir=sys {CANARY[:-2]} / 2>/dev/null):end"',
        shows="found::end",
    ),
    Case(
        "another room's files",
        "find / -name 'neighbour.txt' 2>/dev/null; cat /workspace/../*/neighbour.txt 2>&1",
        hides="private",
    ),
]


# The short form runs at least one case of every kind; these run with it in the long form.
LONG_FORM = {
    "the holder killed",
    "a background process",
    "standard input read",
    "quotes of every kind",
    "99 KB of command",
    "NUL in the command",
    "keyctl",
    "a device node",
    "capabilities",
    "the metadata address",
    "the engine's socket",
    "a sparse file",
    "a fork bomb in Python",
    "a stubborn fork bomb",
    "a background process that left its session",
    "sleep inf",
    "the wrapper killed",
    "everything stopped",
    "every process killed",
    "the grandparent told to end",
    "threads without end",
    "zombies",
    "a memory hog in the shell",
    "a memory hog in the background",
    "the workspace filled by many files of allowed size",
    "the temporary folder filled",
    "deep folders",
    "a file with a long and ugly name",
    "the workspace deleted",
    "hard links out of the workspace",
    "writing beside the workspace",
    "output without a newline",
    "output on both streams without end",
    "text turned round",
    "tags and mentions in output",
    "newlines of every kind",
    "a heredoc",
    "127 KB of command",
    "a syntax error",
    "only a loopback there",
    "AF_NETLINK",
    "AF_ALG",
    "AF_PACKET",
    "raw sockets",
    "x32 system calls",
    "another process's memory",
    "perf_event_open",
    "userfaultfd",
    "a namespace through clone",
    "chroot",
    "becoming root",
    "kernel settings",
    "leaving through the control groups",
    "the holder's files",
    "devices of the host",
    "the bot's settings anywhere",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DUET_MODEL_KEY", "SLACK_BOT_TOKEN", "DISCORD_TOKEN", "HTTP_PROXY", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, CANARY)
        with bench(tmp_path_factory.mktemp("hostile"), image=FULL) as made:
            yield made


@pytest.fixture
async def sandbox(hostile: Bench, request: pytest.FixtureRequest) -> AsyncIterator[DockerSandbox]:
    """Give a sandbox with a short clock for what may run into it; the others get one that no busy machine reaches."""
    case = request.node.callspec.params["case"] if hasattr(request.node, "callspec") else None
    is_short = case is None or Ended.TIMEOUT in case.ended
    async with closing(hostile.sandbox(timeout_s=2 if is_short else 60)) as made:
        if NEIGHBOUR not in {row.room for row in await hostile.ledger.sandboxes()}:
            await run(made, "echo private >neighbour.txt", where=NEIGHBOUR)
        yield made


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in LONG_FORM else []) for case in CASES],
)
async def test_nothing_of_it_is_left(hostile: Bench, sandbox: DockerSandbox, case: Case) -> None:
    result = await run(sandbox, case.code)
    check(case, result)
    await assert_end_state(hostile, sandbox)


def check(case: Case, result: CommandResult) -> None:
    assert result.ended in case.ended, result
    output = result.stdout + result.stderr
    assert case.shows in output, result
    assert not case.hides or case.hides not in output, result
    assert len(output) < 140_000


async def assert_end_state(hostile: Bench, sandbox: DockerSandbox) -> None:
    """Within ten seconds: empty, within its limits, nothing written to the engine's disk, both rooms work, and the
    machine has back what was taken of it.
    """
    async with stopwatch() as seconds:
        after = await run(sandbox, AFTER)
        processes, memory, tasks = after.stdout.split()
        assert int(processes) == 2, "the holder alone"
        assert int(memory) < FULL_FILE_SYSTEMS, "no more than both file systems full"
        assert int(tasks) < 12
        next_door = await run(sandbox, "cat neighbour.txt", where=NEIGHBOUR)
        assert next_door.stdout == "private\n"
        with contextlib.closing(hostile.client()) as client:
            while found := not_given_back(client, hostile):
                assert seconds() < 10, found
                await asyncio.sleep(0.05)
        assert seconds() < 10
        for one in hostile.containers():
            assert sized(hostile, one["Id"]) == 0


FULL_FILE_SYSTEMS = (32 + 16 + 24) << 20
HELD_BY_ENGINE = 96 << 10  # its own files about a container: settings, host name


def not_given_back(client: docker.APIClient, hostile: Bench) -> str:
    """Say what the containers still take of the machine, '' when it has back all but what idle ones need."""
    for one in hostile.containers():
        seen = taken(client, one["Id"])
        if seen is None:  # an engine elsewhere tells no more than this
            if len(client.top(one["Id"])["Processes"]) != 2:
                return "processes"
        elif not (
            seen.processes == seen.tasks == 2
            and seen.memory_bytes < FULL_FILE_SYSTEMS
            and seen.disk_bytes < HELD_BY_ENGINE
        ):
            return str(seen)
    return ""


def sized(hostile: Bench, container_id: str) -> int:
    """Give the bytes that a container has written to the engine's disk, as the engine counts them."""
    with contextlib.closing(hostile.client()) as client:
        size: int = client._get(client._url("/containers/{0}/json?size=1", container_id)).json().get("SizeRw", 0)
        return size


@pytest.fixture
async def patient(hostile: Bench, sandbox: DockerSandbox) -> AsyncIterator[DockerSandbox]:
    """Give what another process of the bot has: the same rooms, and a clock that no busy machine reaches."""
    async with closing(hostile.sandbox(timeout_s=60)) as made:
        yield made


async def test_the_machine_sees_what_a_command_takes_and_has_it_back(hostile: Bench, patient: DockerSandbox) -> None:
    if engine_bytes(hostile.address) is None:
        pytest.skip("the engine is on another machine")
    task = await begun(patient, "head -c 30M /dev/zero >x; sleep 60 & sleep 60 & echo in; sleep 60")
    with contextlib.closing(hostile.client()) as client:
        seen = [taken(client, one["Id"]) for one in hostile.containers(all=False)]
    assert any(one and one.processes > 5 and one.tasks > 5 and one.memory_bytes > 30 << 20 for one in seen), seen
    task.cancel()
    await asyncio.wait({task})
    await run(patient, "rm x")
    await assert_end_state(hostile, patient)


async def test_the_room_next_door_works_while_others_are_at_their_worst(
    hostile: Bench, sandbox: DockerSandbox, patient: DockerSandbox
) -> None:
    worst = [case for case in CASES if case.name in ("a fork bomb", "a memory hog", "a gigabyte of output")]
    before = engine_bytes(hostile.address)
    *ended, next_door = await asyncio.gather(
        *(run(sandbox, case.code, where=room(case.name)) for case in worst),
        run(patient, "cat neighbour.txt", where=NEIGHBOUR),
    )
    assert (next_door.ended, next_door.stdout) == (Ended.EXIT, "private\n")
    for case, result in zip(worst, ended, strict=True):
        check(case, result)
        assert (await run(patient, "echo on", where=room(case.name))).stdout == "on\n"
    await assert_end_state(hostile, patient)
    for case in worst:
        await patient.destroy(room(case.name), through=0)
    if before is not None:
        assert (engine_bytes(hostile.address) or 0) - before < 64 << 20, "a gigabyte went past the engine, not into it"


# Processes of other users, memory that the container is charged with, and its tasks (this command's among them).
AFTER = (
    "ps -eo uid= | grep -vcw 1000; "
    "cat /sys/fs/cgroup/memory/memory.usage_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.current; "
    "cat /sys/fs/cgroup/pids/pids.current 2>/dev/null || cat /sys/fs/cgroup/pids.current"
)
