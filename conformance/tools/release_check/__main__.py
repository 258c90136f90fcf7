"""``make release-check``: prints what was tried, and exits with 1 if a release of this commit would disappoint."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import CommandFailed

from release_check import artifacts, installs

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Build, compare, read, install; the files of the release are left in ``--output``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--torch", default="torch", help="what pip installs first where lpkit check is tried")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = artifacts.export(ROOT, folder / "a")
        built = artifacts.build(source, folder / "first", 0o022)
        again = artifacts.build(artifacts.export(ROOT, folder / "elsewhere" / "b"), folder / "second", 0o077)
        problems = list(artifacts.problems(built, source))
        if built.digests() != again.digests():
            problems.append(f"two builds of one commit differ: {built.digests()}, {again.digests()}")
        else:
            print(f"{built.wheel.name} and {built.sdist.name}: built twice, the same bytes")
        twine = [sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist)]
        if subprocess.run(twine, check=False).returncode:
            problems.append("twine check refuses them")
        version = str(artifacts.metadata(built.wheel)["Version"])
        try:
            for line in installs.try_everywhere(built.wheel, folder, version, options.torch):
                print(line, flush=True)
        except CommandFailed as error:
            problems.append(str(error))
        options.output.mkdir(parents=True, exist_ok=True)
        for file in (built.wheel, built.sdist):
            shutil.copy(file, options.output)
        (options.output / "sbom").mkdir(exist_ok=True)
        inventory = options.output / "sbom" / f"vllm-lpkit-{version}.cdx.json"
        installs.inventory(built.wheel, folder / "inventory", inventory)
        print(f"{inventory.name}: what a bare install brings")
    print("\n".join(problems) or "no problems found")
    return bool(problems)


sys.exit(main())
