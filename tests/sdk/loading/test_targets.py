"""``lpkit.loading.resolve_target``: what a user may name, and what is said of what cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lpkit import loading
from lpkit.loading import ImportFailedError, InvalidTargetError, WrongInterfaceError

Install = Callable[..., None]


def write(path: Path, body: str = "from lp_plugin import Both\nclass Mine(Both): pass\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    return path


def name_of(spec: object) -> str:
    cls = loading.resolve_target(spec)  # type: ignore[arg-type]
    return f"{cls.__module__}:{cls.__qualname__}"


def test_an_entry_point_by_name(install: Install) -> None:
    install("a-dist", "0.2", mine="lp_plugin:OnlyV1")
    assert name_of("mine") == "lp_plugin:OnlyV1"


def test_a_class_in_a_module_and_a_class_itself(site: Path) -> None:
    assert name_of("lp_plugin:Outer.Inner") == "lp_plugin:Outer.Inner"
    assert name_of(loading.resolve_target("lp_plugin:Outer.Inner")) == "lp_plugin:Outer.Inner"


def test_a_name_that_is_not_installed_brings_the_nearest(install: Install) -> None:
    install("a-dist", minp="lp_plugin:Both")
    with pytest.raises(InvalidTargetError, match=r"'min_p'.*Did you mean 'minp'"):
        loading.resolve_target("min_p")
    with pytest.raises(InvalidTargetError, match="A class in a module is named lp_plugin:Both"):
        loading.resolve_target("lp_plugin.Both")
    with pytest.raises(InvalidTargetError, match="Installed: minp"):
        loading.resolve_target("unlike")


def test_a_name_of_two_different_plugins_is_ambiguous(install: Install) -> None:
    install("a-dist", minp="lp_plugin:Both")
    install("b-dist", minp="lp_plugin:OnlyV1")
    with pytest.raises(InvalidTargetError, match=r"several entry points.*a-dist 1\.0.*b-dist 1\.0"):
        loading.resolve_target("minp")


def test_a_file_with_its_folder_importable(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "src" / "lp_helper.py", "from lp_plugin import Both\n")
    file = write(tmp_path / "src" / "lp_mine.py", "from lp_helper import Both\nclass Mine(Both): pass\n")
    assert name_of(f"{file}:Mine") == name_of(str(file)) == "lp_mine:Mine"


def test_a_file_in_a_package_keeps_its_relative_imports(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "src" / "lp_pack" / "__init__.py", "")
    write(tmp_path / "src" / "lp_pack" / "base.py")
    file = write(tmp_path / "src" / "lp_pack" / "top.py", "from .base import Mine as B\nclass M(B): pass\n")
    assert name_of(f"{file}:M") == "lp_pack.top:M"


def test_a_file_named_like_a_standard_module_does_not_replace_it(site: Path, tmp_path: Path) -> None:
    import random

    file = write(tmp_path / "src" / "random.py")
    assert name_of(f"{file}:Mine") == "lpkit_target_random:Mine"
    assert sys.modules["random"] is random


def test_two_files_of_one_name_are_two_modules(site: Path, tmp_path: Path) -> None:
    first = loading.resolve_target(f"{write(tmp_path / 'a' / 'lp_same.py')}:Mine")
    second = loading.resolve_target(f"{write(tmp_path / 'b' / 'lp_same.py')}:Mine")
    assert first is not second


def test_a_file_without_a_class_name_must_define_exactly_one(site: Path, tmp_path: Path) -> None:
    two = write(tmp_path / "lp_two.py", "from lp_plugin import Both\nclass A(Both): ...\nclass B(Both): ...\n")
    with pytest.raises(InvalidTargetError, match=r"It defines A, B; write .*lp_two\.py:Class"):
        loading.resolve_target(str(two))
    none = write(tmp_path / "lp_none.py", "from lp_plugin import Both\n")
    with pytest.raises(InvalidTargetError, match="It defines no processor"):
        loading.resolve_target(str(none))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "lp_broken.py", "class (\n")
    with pytest.raises(InvalidTargetError, match=r"no file.*Did you mean 'lp_broken\.py'"):
        loading.resolve_target(f"{tmp_path / 'lp_brokn.py'}:P")
    with pytest.raises(ImportFailedError, match="SyntaxError"):
        loading.resolve_target(f"{tmp_path / 'lp_broken.py'}:P")
    assert "lp_broken" not in sys.modules


def test_a_class_without_an_interface_is_refused(site: Path) -> None:
    with pytest.raises(WrongInterfaceError, match="neither"):
        loading.resolve_target("lp_plugin:Outer")
