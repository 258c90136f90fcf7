"""A scaffolded plugin, a tiny model with a tokenizer, and ``vllm serve`` with both, in a process group of its own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpkit_cli.scaffold.baking import bake
from lpkit_cli.scaffold.naming import names_for
from lpkit_conformance.engine import model
from safetensors.torch import load_file, save_file

PROBES = Path(__file__).parents[1] / "probes"
RULES = Path(__file__).parents[3] / "reference_plugins" / "lpkit-rules"
VOCAB = 512
EOS = 2  # of the tiny model, and the token that the README's requests raise
WORDS = {"<unk>": 0, "<s>": 1, "</s>": EOS} | {f"w{number}": number for number in range(3, VOCAB)}
LONGEST = 600
START_TIMEOUT = 300.0
COMPLETIONS = "/v1/completions"
CURL_HEADER = "Content-Type: application/json"


@dataclass(frozen=True)
class Made:
    """``project``: what ``lpkit new`` wrote. ``site``: a folder into which pip installed it. ``home``: holds MODEL."""

    project: Path
    site: Path
    home: Path

    def environment(self, *first: Path) -> dict[str, str]:
        """``first`` goes before everything on the path of a Python that is started with this environment."""
        paths = [str(path) for path in first] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        return kept | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TORCHDYNAMO_DISABLE": "1",
        }


def write_tokenizer(folder: Path) -> None:
    """One token per word: "w7" is token 7, and a word that is not in ``WORDS`` is token 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def never_ending(folder: Path) -> None:
    """Make the model say EOS only when it is raised: its logit is 0, and some other token's is always above that."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["lm_head.weight"][EOS] = 0.0
    save_file(weights, file, metadata={"format": "pt"})


def write_metadata_of_vllm(site: Path) -> None:
    """vLLM's command line asks for the version of the distribution "vllm", which CPU builds go without."""
    with suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")
        return
    version = importlib.metadata.version("vllm-cpu") + "+cpu"
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")


def make(folder: Path) -> Made:
    """Scaffold a plugin, install it and lpkit-rules, and write the model: all in ``folder``."""
    project = bake(names_for("made-online"), "processor", folder)
    site = folder / "site"
    # Without isolation if the build backend is at hand; else pip fetches it.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *isolation, "--target", str(site)]
    done = subprocess.run(
        [*command, str(project), str(RULES)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    write_metadata_of_vllm(site)
    model.write(folder / "MODEL", VOCAB, LONGEST)
    never_ending(folder / "MODEL")
    write_tokenizer(folder / "MODEL")
    return Made(project, site, folder)


class Server:
    """``vllm serve MODEL`` on loopback, in a process group of its own that ``close`` ends.

    ``more``: further options. ``environment``: further variables.
    """

    def __init__(
        self, runner: str, made: Made, more: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.runner = runner
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        vllm = Path(sys.executable).with_name("vllm")
        program = [str(vllm)] if runner == "v1" else [sys.executable, str(PROBES / "serve_probe.py")]
        options = ["--host", "127.0.0.1", "--port", self.url.rpartition(":")[2], "--dtype", "float32"]
        options += ["--enforce-eager", "--max-model-len", str(LONGEST), "--max-num-seqs", "8"]
        # Greedy unless a request says otherwise.
        options += ["--override-generation-config", '{"temperature": 0.0}']
        self.command = [*program, "serve", "MODEL", *options, *more]
        self._log = made.home / f"{runner}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=made.home,
                env=made.environment(made.site) | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it is healthy. Raises AssertionError with its log when it ended or took too long."""
        end = time.monotonic() + START_TIMEOUT
        while not self.healthy():
            assert self._process.poll() is None, f"the server ended:\n{self.log[-8000:]}"
            assert time.monotonic() < end, f"the server did not start in {START_TIMEOUT:.0f} s:\n{self.log[-8000:]}"
            time.sleep(0.2)

    def healthy(self) -> bool:
        try:
            return self.get("/health") == ""
        except (urllib.error.URLError, OSError):
            return False

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str) -> str:
        """The body of the answer to a GET."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=10) as reply:
            return str(reply.read().decode())

    def metric(self, name: str) -> float:
        """The sum of a counter over its labels."""
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.get("/metrics"), flags=re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def curl(self, body: str) -> tuple[int, Any]:
        """Send this body with the README's command; return status and JSON. Without curl, Python sends the same."""
        url = self.url + COMPLETIONS
        if curl := shutil.which("curl"):
            command = [curl, url, "-H", CURL_HEADER, "-d", body, "-s", "--noproxy", "*", "-w", "\n%{http_code}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            reply, _, status = done.stdout.rpartition("\n")
            return int(status), json.loads(reply)
        name, _, value = CURL_HEADER.partition(": ")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, body.encode(), {name: value}), timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def close(self) -> None:
        """End the server, and whatever it started and left in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
