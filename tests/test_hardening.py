"""What files and specs from others can make the program do: nothing but be read, or be refused."""

from __future__ import annotations

import ast
import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedrelay
from fedrelay.data.loaders import file_checks
from fedrelay.data.loaders.cifar import CIFAR100
from fedrelay.data.loaders.idx import FILES
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError, FedRelayError, RunFolderError, SpecError
from fedrelay.experiment.spec import load_file
from fedrelay.files import read_regular_file, write_atomically
from fedrelay.grouping.profiles.probe_network import read_resnet18
from fedrelay.local.client_state import ClientStateStore

SOURCE = Path(fedrelay.__file__).parent
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load",
    "yaml.unsafe_load", "yaml.full_load", "np.load", "numpy.load", "os.system", "subprocess.run", "subprocess.Popen",
    "tarfile.extractall", "archive.extractall", "archive.extract", "shutil.unpack_archive",
}  # fmt: skip

ALLOWED = {
    # A job on its way inside the user's own Ray cluster, which runs the user's code by design.
    "engines/ray/serialized_job.py": {"pickle.loads", "torch.load"},
    # Starts Flower's SuperLink, with arguments that are our own.
    "engines/flower/superlink.py": {"subprocess.Popen"},
    # Reads class counts of a run folder, without pickles.
    "data/client_class_counts.py": {"np.load"},
    # Starts the script of a demo, which is in the package.
    "cli/demo.py": {"subprocess.run"},
}


def calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


def dangers(path):
    """The calls of a file that might run what another file says."""
    for name, options in calls(path):
        allowed = name in ALLOWED.get(path.relative_to(SOURCE).as_posix(), ())
        trusting = "True" in (options.get("allow_pickle"), options.get("shell"))
        pickled = name == "torch.load" and options.get("weights_only") != "True"
        if trusting or ((name in FORBIDDEN or pickled) and not allowed):
            yield f"{path}: {name}({', '.join(f'{word}={value}' for word, value in options.items())})"


def test_nothing_runs_what_a_file_says():
    assert [danger for path in sorted(SOURCE.rglob("*.py")) for danger in dangers(path)] == []


@pytest.mark.parametrize(
    "code", ["eval(x)", "np.load(x, allow_pickle=True)", "start(x, shell=True)", "torch.load(x)", "os.system(x)"]
)
def test_dangers_are_noticed(code, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "file.py").write_text(code)
    assert len(list(dangers(tmp_path / "file.py"))) == 1


class Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def test_a_pickle_in_a_cifar_batch_calls_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for batch in CIFAR100.batches:
        (tmp_path / batch).write_bytes(pickle.dumps({b"data": Evil(), CIFAR100.labels: [1]}))
    with pytest.raises(DataError, match="refused: it names"):
        load_dataset("cifar100", tmp_path)
    assert not (tmp_path / "owned").exists()


def test_a_pickle_in_an_archive_or_in_weights_calls_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.array([Evil()], dtype=object)
    np.savez(tmp_path / "evil.npz", x_train=objects, y_train=[0], x_test=objects, y_test=[0])
    with pytest.raises(DataError, match="stores x_train as Python objects, which is not safe to read"):
        load_dataset("npz", tmp_path / "evil.npz")
    torch.save({"conv1.weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(SpecError, match="cannot be read as weights"):
        read_resnet18(tmp_path / "evil.pt")
    (tmp_path / "evil.yaml").write_text("method: !!python/object/apply:os.mkdir [owned]\n")
    with pytest.raises(SpecError, match="not valid YAML"):
        load_file(tmp_path / "evil.yaml")
    assert not (tmp_path / "owned").exists()


@pytest.fixture
def little_memory(monkeypatch):
    """A machine on which a megabyte is half of the memory."""
    monkeypatch.setattr(file_checks, "max_bytes", lambda: 1 << 20)


def test_a_zip_bomb(tmp_path, little_memory):
    rows = np.zeros((1 << 20, 4), np.uint8)
    np.savez_compressed(
        tmp_path / "bomb.npz", x_train=rows, y_train=np.zeros(1 << 20, np.uint8), x_test=rows[:1], y_test=[0]
    )
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    with pytest.raises(DataError, match=r"unpacks to 4,194,304 bytes or more; the limit is 1,048,576"):
        load_dataset("npz", tmp_path / "bomb.npz")


def test_gzip_bombs(tmp_path, little_memory):
    images = struct.pack(">I3I", 0x803, 4096, 28, 28) + bytes(4096 * 784)
    labels = struct.pack(">II", 0x801, 4096) + bytes(4096)
    for name in FILES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(images if "images" in name else labels))
    with pytest.raises(DataError, match="unpacks to 3,211,264 bytes or more"):
        load_dataset("mnist", tmp_path)
    for name in ("KDDTrain+.txt.gz", "KDDTest+.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"0," * (1 << 20)))
    with pytest.raises(DataError, match="half of this machine's memory"):
        load_dataset("nsl-kdd", tmp_path)


def test_an_archive_of_batches_that_unpacks_to_too_much(tmp_path, little_memory):
    path = tmp_path / CIFAR100.archive
    with tarfile.open(path, "w:gz") as archive:
        for batch in CIFAR100.batches:
            member = tarfile.TarInfo(f"{CIFAR100.folder}/{batch}")
            member.size = 2 << 20
            archive.addfile(member, io.BytesIO(bytes(2 << 20)))
    with pytest.raises(DataError, match="unpacks to 2,097,152 bytes or more"):
        load_dataset("cifar100", path)


def test_an_archive_leads_nowhere(tmp_path):
    path = tmp_path / "in" / CIFAR100.archive
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../owned", "/tmp/fedrelay-owned", f"{CIFAR100.folder}/train"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(DataError):
        load_dataset("cifar100", path)
    assert [each.name for each in tmp_path.iterdir()] == ["in"]
    assert not Path("/tmp/fedrelay-owned").exists()


def test_pictures_that_are_larger_than_they_look(tmp_path, little_memory):
    for part in ("train", "test"):
        (tmp_path / part / "cat").mkdir(parents=True)
        Image.new("L", (2000, 2000)).save(tmp_path / part / "cat" / "1.png")
    with pytest.raises(DataError, match="unpacks to 4,000,000 bytes or more"):
        load_dataset("image-folder", tmp_path)


def test_headers_that_claim_more_than_the_file_holds(tmp_path):
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    header += b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999, 3), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", header)
    with pytest.raises(DataError, match="more than the file can contain"):
        load_dataset("npz", tmp_path / "claims.npz")
    for name in FILES:
        (tmp_path / name).write_bytes(struct.pack(">I3I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1))
    with pytest.raises(DataError, match="more than the file can contain"):
        load_dataset("mnist", tmp_path)
    (tmp_path / "claims.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(SpecError, match="cannot be read as weights"):
        read_resnet18(tmp_path / "claims.safetensors")


def test_links_where_files_are_written(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for link in ("result.json", f".result.json.{os.getpid()}.tmp"):
        (tmp_path / link).symlink_to(precious)
    write_atomically(tmp_path / "result.json", b"{}")
    assert precious.read_text() == "mine"
    assert (tmp_path / "result.json").read_text() == "{}"
    assert not (tmp_path / "result.json").is_symlink()


def test_a_linked_folder_of_what_clients_keep(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.tex").write_text("mine")
    (tmp_path / "clients").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match="is a link"):
        ClientStateStore(tmp_path / "clients").restore([])
    assert (tmp_path / "elsewhere" / "thesis.tex").exists()


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular_file(path)


def test_names_with_a_null_character():
    for settings in ({"out": "a\x00b"}, {"data": {"name": "\x00.npz"}}, {"data": {"path": "\x00"}}):
        with pytest.raises(FedRelayError, match="must not contain a null character"):
            fedrelay.run("fedavg", **settings)
