"""A device that runs behind its host is pretended: a real one of that name stays as it is."""

from __future__ import annotations

from unittest import mock

from lpkit import kernels
from lpkit_conformance.instruments.in_flight import DEVICE, InFlight


def test_no_kernels_are_compiled_for_the_device_that_is_pretended() -> None:
    with mock.patch.object(kernels, "prepare") as prepare, mock.patch.object(kernels, "prepare_few") as prepare_few:
        with InFlight(2).events():
            assert kernels.prepare(DEVICE, 100) is kernels.prepare_few(DEVICE) is None
        assert not prepare.called and not prepare_few.called
