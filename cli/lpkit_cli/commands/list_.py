"""``lpkit list``: the logits processors that vLLM would load from this environment, and if it would start."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def list_(
    load: Annotated[
        bool, typer.Option("--load", help="Import the plugins, in a child process, instead of reading their source.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also list the runners and engines of each processor.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON of schema lpkit.list/1.")] = False,
) -> None:
    """List the installed logits processors, and tell if vLLM would start with them.

    Nothing is imported without --load.
    """
    from lpkit_conformance.discovery.installed import take_inventory
    from lpkit_conformance.report import list_ as report
    from lpkit_conformance.report.as_json import write

    inventory = take_inventory()
    if load and inventory.plugins:
        from lpkit_conformance.discovery.load import load as load_all

        inventory = load_all(inventory)
    if as_json:
        write(inventory, sys.stdout)
    else:
        report.show(inventory, sys.stdout, loaded=load, verbose=verbose)
