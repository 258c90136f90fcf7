"""Origins of the sources: an index page, a source distribution, a wheel, a cache."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.vllm_api.facts import VLLM, in_full
from vllm_canary import __main__ as command
from vllm_canary.readers import READERS, WANTED
from vllm_canary.releases import FetchError, Origin, cached, fetch, find_releases, read_index

FILES = {WANTED[0]: "x = 1\n", WANTED[1]: "y = 2\n"}
PAGE = """<html><body>
<a href="../../f/vllm-0.31.0.tar.gz#sha256=abc" data-requires-python="&gt;=3.10">vllm-0.31.0.tar.gz</a><br/>
<a href="../../f/vllm-0.31.0-cp38-abi3-manylinux_2_28_x86_64.whl"
>vllm-0.31.0-cp38-abi3-manylinux_2_28_x86_64.whl</a>
<a href="https://files/vllm-0.15.0-cp38-abi3-manylinux_2_31_x86_64.whl">vllm-0.15.0-cp38-abi3-manylinux_2_31_x86_64.whl</a>
<a href="https://files/vllm-0.15.0-cp38-abi3-manylinux_2_31_aarch64.whl">vllm-0.15.0-cp38-abi3-manylinux_2_31_aarch64.whl</a>
<a href="https://files/vllm-0.32.0rc1.tar.gz">vllm-0.32.0rc1.tar.gz</a>
<a href="https://files/vllm-0.30.0.tar.gz" data-yanked="broken">vllm-0.30.0.tar.gz</a>
<a href="https://files/vllm-0.10.1.1.tar.gz">vllm-0.10.1.1.tar.gz</a>
</body></html>"""


def serving(content: bytes) -> Callable[[Any], Any]:
    return lambda request: io.BytesIO(content)


def sdist(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"vllm-9.9.9/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wheel(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr("vllm/kernels.so", b"")
    return buffer.getvalue()


def test_final_releases_are_found_and_source_is_preferred() -> None:
    found = find_releases(PAGE, "https://index/simple/vllm/")
    assert list(found) == [(0, 10, 1, 1), (0, 15, 0), (0, 31, 0)]
    assert found[0, 31, 0] == Origin("vllm-0.31.0.tar.gz", "https://index/f/vllm-0.31.0.tar.gz", "abc")
    assert found[0, 15, 0].file.endswith("x86_64.whl")


def test_an_index_without_releases_is_an_error() -> None:
    with pytest.raises(FetchError, match="lists no release"):
        read_index("https://index/simple", serving(b"<html>"))


def test_only_what_is_wanted_of_a_source_distribution_is_kept(tmp_path: Path) -> None:
    content = sdist({"vllm/envs.py": "x = 1\n", "vllm/other.py": "y = 2\n", "csrc/kernel.cu": ""})
    origin = Origin("vllm-9.9.9.tar.gz", "https://files/f", hashlib.sha256(content).hexdigest())
    fetch(origin, tmp_path, WANTED, serving(content))
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"envs.py", "origin.json"}
    source = cached(tmp_path, WANTED)
    assert source is not None
    assert source.files == {"vllm/envs.py": "x = 1\n"}


def test_a_file_that_is_wanted_since_makes_the_cache_stale(tmp_path: Path) -> None:
    content = sdist({"vllm/envs.py": "x = 1\n"})
    fetch(Origin("vllm-9.9.9.tar.gz", "https://files/f"), tmp_path, ["vllm/envs.py"], serving(content))
    assert cached(tmp_path, ["vllm/envs.py"]) is not None
    assert cached(tmp_path, ["vllm/envs.py", "vllm/new.py"]) is None


@pytest.mark.parametrize(
    ("content", "digest"),
    [(sdist({"vllm/envs.py": "x = 1\n"}), "0" * 64), (sdist(FILES)[:100], ""), (b"not an archive", "")],
    ids=["another digest", "cut off", "no archive"],
)
def test_a_damaged_file_is_an_error_and_leaves_nothing(tmp_path: Path, content: bytes, digest: str) -> None:
    with pytest.raises(FetchError, match="vllm-9"):
        fetch(Origin("vllm-9.9.9.tar.gz", "https://files/f", digest), tmp_path, WANTED, serving(content))
    assert cached(tmp_path, WANTED) is None


def test_a_release_without_a_source_distribution_is_read_from_its_wheel(tmp_path: Path) -> None:
    origin = Origin("vllm-9.9.9-cp38-abi3-manylinux_2_31_x86_64.whl", "https://files/f")
    fetch(origin, tmp_path, WANTED, serving(wheel(FILES)))
    source = cached(tmp_path, WANTED)
    assert source is not None
    assert source.files == FILES


def cache(folder: Path, version: str, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / version / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / version / path).write_text(text, encoding="utf-8")
    (folder / version / "origin.json").write_text(
        json.dumps({"file": f"vllm-{version}.tar.gz", "url": "", "wanted": WANTED})
    )


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The facts that are read of any release; those of the newest one."""
    facts = {key: VLLM.value(key, None) for key in READERS}
    monkeypatch.setattr(command, "read_all", lambda _: facts)
    return facts


def test_a_run_over_a_new_release_that_changed_nothing_is_exit_0_and_prints_its_section(tmp_path: Path, capsys) -> None:
    cache(tmp_path, "99.0.0", FILES)
    cache(tmp_path, "99.1.0", FILES)
    assert command.main(["--offline", "--cache", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "2 releases, up to 99.1.0: all as expected." in printed
    assert '[releases."99.0.0"]\n\n[releases."99.1.0"]\n' in printed


def test_a_known_release_needs_no_section(tmp_path: Path, capsys) -> None:
    cache(tmp_path, in_full(VLLM.rows[-1].release), FILES)
    assert command.main(["--offline", "--cache", str(tmp_path)]) == 0
    assert "[releases" not in capsys.readouterr().out


def test_one_that_changed_something_is_exit_1_and_says_what(tmp_path: Path, capsys, known: dict[str, str]) -> None:
    cache(tmp_path, "99.0.0", FILES)
    known["v1-update"] = "batch_size, removed, moved, added"
    assert command.main(["--offline", "--cache", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "vLLM 99.0.0: v1-update" in printed
    assert "found     batch_size, removed, moved, added" in printed
    assert '[releases."99.0.0"]\nv1-update = "batch_size, removed, moved, added"\n' in printed


def test_nothing_to_read_is_exit_2(tmp_path: Path, capsys) -> None:
    assert command.main(["--offline", "--cache", str(tmp_path)]) == 2
    assert command.main(["--offline", "--cache", str(tmp_path), "--release", "1.0.0"]) == 2
    assert "no release" in capsys.readouterr().err
