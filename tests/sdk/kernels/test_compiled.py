"""Masks compiled for the CPU do what torch's operations do, bit for bit, and only where they are asked for."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from lpkit import kernels
from lpkit.kernels import fused
from sdk_hosts import recorded_ops

INF = math.inf
CPU = torch.device("cpu")
EXTREMES = [0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, INF, -INF, 1.0, math.nan]
LIMITS = torch.tensor([[0.5], [-INF], [INF], [-0.0], [3.4e38], [-3.4e38], [2.0]])
ASK = "LPKIT_COMPILE"

Mask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    kernels.prepare.cache_clear()
    yield
    kernels.prepare.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As in a server that asks for compiled kernels."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv(ASK, "1")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the compiler's own
        found = kernels.prepare(CPU)
    assert found is not None
    return found


@pytest.fixture
def any_size(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The same, and logits of any size are large enough."""
    monkeypatch.setattr(compiled, "LEAST_BYTES", 0)
    return compiled


def logits_with_extremes(rows: int, vocab: int) -> torch.Tensor:
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0)) * 3
    for row in range(rows):
        logits[row, row : row + len(EXTREMES)] = torch.tensor(EXTREMES)
    return logits


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.equal(found.view(torch.int32), expected.view(torch.int32))


def far_below(logits: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    return logits.masked_fill(logits < logits.amax(1, keepdim=True) - distance, -INF)


RULES: list[tuple[Mask, Mask]] = [
    (kernels.mask_below_, lambda logits, limit: logits.masked_fill(logits < limit, -INF)),
    (kernels.mask_above_, lambda logits, limit: logits.masked_fill(logits > limit, -INF)),
    (kernels.mask_far_below_top_, far_below),
]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("vocab", [300, 1021, 4096])
def test_compiled_masks_keep_every_bit_of_what_they_keep(vocab: int) -> None:
    for mask, expected in RULES:
        logits, limits = logits_with_extremes(7, vocab), LIMITS
        if mask is kernels.mask_far_below_top_:
            logits = logits.nan_to_num(nan=0.0, posinf=4.0, neginf=-INF).clamp(max=4.0)
            limits = torch.tensor([[0.0], [2.5], [1000.0], [INF], [1.0], [0.5], [4.0]])
        wanted = expected(logits, limits)
        with torch.inference_mode():
            own = logits.clone()
            result = mask(own, limits)
        assert result.data_ptr() == own.data_ptr()
        assert same_bits(result, wanted), mask.__name__


def test_compiled_numbers_of_rows_are_torchs(any_size: ModuleType) -> None:
    logits = torch.randn(7, 1021, generator=torch.Generator().manual_seed(2)) * 3 + 20
    logits[:, :3] = -INF
    temperature = torch.linspace(0.3, 2.0, 7).unsqueeze(1)
    seeds = torch.arange(7, dtype=torch.int32).unsqueeze(1) * 7919
    limit, bias = torch.full((7, 1), -(2**30), dtype=torch.int32), temperature
    found, expected = [], []
    for results, smallest in ((found, 0), (expected, 2**40)):
        any_size.LEAST_BYTES = smallest
        with torch.inference_mode():
            results += [kernels.least_from(logits, LIMITS + 20), kernels.log_sum_exp(logits, temperature)]
            results += kernels.top_and_deviation(logits)
            results += [kernels.add_where_hashed_(logits.clone(), seeds, limit, bias)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_one_row_strided_logits_and_watched_operations_are_left_to_torch(any_size: ModuleType) -> None:
    logits = torch.zeros(4, 600)
    assert any_size.suits(logits)
    assert not any_size.suits(logits[:1])
    assert not any_size.suits(logits[:, :500])
    with recorded_ops() as names:
        assert not any_size.suits(logits)
        kernels.mask_below_(logits, torch.ones(4, 1))
    assert "addcmul_" in names
    assert logits.isinf().all()


def test_small_logits_are_left_to_torch(compiled: ModuleType) -> None:
    assert not compiled.suits(torch.zeros(8, 128_000))
    assert compiled.suits(torch.zeros(32, 128_000))


def test_nothing_is_compiled_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASK, raising=False)
    monkeypatch.setattr(fused, "import_module", lambda name: pytest.fail(f"{name} was loaded"))
    assert kernels.prepare(CPU) is None


def test_without_a_compiler_masks_are_torchs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def absent(name: str) -> None:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setenv(ASK, "1")
    monkeypatch.setattr(fused, "import_module", absent)
    with caplog.at_level("INFO", logger="lpkit"):
        logits = kernels.mask_below_(torch.zeros(3, 8), torch.ones(3, 1))
    assert logits.isinf().all()
    assert "no C++ compiler" in caplog.text
