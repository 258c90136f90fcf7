"""``pip install -q -e .`` without a network: an editable install needs a package that nothing else here needs.

pip builds and installs the project; what it copied is then replaced by a path to the source, as an editable install
leaves it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


def main(arguments: list[str]) -> int:
    usual = [argument for argument in arguments if argument != "-e"]
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run([sys.executable, "-m", "pip", *usual, *offline], check=False)
    if done.returncode == 0 and "-e" in arguments:
        source = Path.cwd() / "src"
        site = Path(sysconfig.get_path("purelib"))
        for package in source.iterdir():
            shutil.rmtree(site / package.name)
        (site / f"{Path.cwd().name}.pth").write_text(str(source), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
