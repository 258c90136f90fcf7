"""The checks, one module per family; importing this package registers them all."""

from lpkit_conformance.checks import (
    lp0_discovery,
    lp1_parameters,
    lp2_bookkeeping,
    lp2_mixtures,
    lp3_contract,
    lp3_devices,
    lp4_argmax,
    lp5_engine_data,
    lp5_history,
    lp6_determinism,
    lp6_environment,
    lp7_cost,
    lp8_v2,
    lp9_engine,
)

__all__ = [
    "lp0_discovery",
    "lp1_parameters",
    "lp2_bookkeeping",
    "lp2_mixtures",
    "lp3_contract",
    "lp3_devices",
    "lp4_argmax",
    "lp5_engine_data",
    "lp5_history",
    "lp6_determinism",
    "lp6_environment",
    "lp7_cost",
    "lp8_v2",
    "lp9_engine",
]
