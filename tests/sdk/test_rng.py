"""Random numbers keyed by what they are for: published values, uniformity, independence of the batch."""

from __future__ import annotations

import torch
from lpkit import rng
from published_hashes import MASK, murmur32, splitmix64


def test_hashes_are_the_published_ones() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the first number of the generator seeded with 0
    keys = [0, 1, -1, 2**63 - 1, -(2**63), 123456789]
    found = rng.mix(torch.tensor(keys)).tolist()
    assert [value & MASK for value in found] == [splitmix64(key & MASK) for key in keys]
    assert murmur32(1) == 0x514E28B7
    keys = [0, 1, -1, 2**31 - 1, -(2**31), 77]
    found = rng.mix32_(torch.tensor(keys, dtype=torch.int32)).tolist()
    assert [value & 0xFFFFFFFF for value in found] == [murmur32(key & 0xFFFFFFFF) for key in keys]


def test_keys_are_chained_in_order() -> None:
    a, b = torch.tensor([5]), torch.tensor([7])
    assert int(rng.mix(a, b)) & MASK == splitmix64(splitmix64(5) ^ 7)
    assert int(rng.mix(a, b)) != int(rng.mix(b, a))


def test_numbers_are_uniform_and_neighbouring_keys_unrelated() -> None:
    numbers = rng.uniform(torch.arange(200).unsqueeze(1), torch.arange(500))
    assert numbers.dtype == torch.float32
    assert 0 <= float(numbers.min()) < 1e-4
    assert 1 - 1e-4 < float(numbers.max()) < 1
    assert abs(float(numbers.mean()) - 0.5) < 0.005
    histogram = torch.histc(numbers, 20, 0, 1)
    assert float(((histogram - 5000) ** 2 / 5000).sum()) < 44  # chi-square, 19 degrees, p = 0.001
    for one, other in [(numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])]:
        assert abs(float(torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1])) < 0.015


def test_a_number_depends_on_its_keys_alone() -> None:
    seeds, positions = torch.tensor([3, 9, 3]), torch.tensor([10, 20, 11])
    together = rng.uniform(seeds, positions)
    alone = [rng.uniform(seeds[i : i + 1], positions[i : i + 1]) for i in (2, 0, 1)]
    assert torch.equal(together[[2, 0, 1]], torch.cat(alone))
