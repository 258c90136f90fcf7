"""Real engines of several vLLM releases: which reference plugins and engine tests pass on each?

    make certify CERTIFY_OPTIONS='[--only RELEASE...] [--tests] [--again]'

Results are kept by release and plugin in the folder of the environments, so that a run can be stopped and resumed. The
page keeps its rows of other releases. An environment of a release takes about 3.5 GB. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

from commands import CommandFailed, output

from certify import page
from certify.environment import ROOT, TORCH, USUAL, Environment, plugins_here
from certify.trials import try_plugin, try_tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="certify", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the environments")
    parser.add_argument("--page", type=Path, required=True, help="the page to write")
    parser.add_argument("--only", nargs="+", choices=TORCH, default=USUAL, metavar="RELEASE")
    parser.add_argument("--tests", action="store_true", help="run the engine tests, too, half an hour each")
    parser.add_argument("--again", action="store_true", help="repeat what has been tried already")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    failed = False
    for release in options.only:
        environment = Environment(release, (options.work / release).resolve())
        print(f"vLLM {release}", flush=True)
        try:
            environment.prepare(shlex.split(os.environ.get("PIP_OPTIONS", "")))
        except CommandFailed as failure:
            print(f"  not installed: {failure}", flush=True)
            failed = True
            continue
        if options.again:
            results.pop(release, None)
        result = results.setdefault(release, {"torch": environment.torch, "plugins": {}})
        revision = output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip()
        now = {"date": date.today().isoformat(), "revision": revision}

        def keep() -> None:
            kept.write_text(json.dumps(results))
            options.page.write_text(page.text(results, options.page.read_text() if options.page.exists() else ""))

        for folder in plugins_here():
            if folder.name not in result["plugins"]:
                outcome = result["plugins"][folder.name] = try_plugin(environment, folder)
                result.update(now)
                failed |= outcome["verdict"] != "pass"
                print(f"  {folder.name}: {outcome['verdict']} {outcome['runners']}", flush=True)
                keep()
        if options.tests and "tests" not in result:
            tests = result["tests"] = try_tests(environment) | now
            failed |= bool(tests["failed"] or tests["problems"])
            print(
                f"  engine tests: {tests['passed']} passed, {tests['skipped']} skipped, {tests['failed']}", flush=True
            )
        keep()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
