"""Hosts: each drives a plugin through a program as a vLLM runner would, and records every row."""

from lpkit_conformance.hosts.base import Driver, Host
from lpkit_conformance.hosts.parts import alone, default_host, drive, parts_of
from lpkit_conformance.subject.calls import Observation, PluginError, SeenRow

__all__ = ["Driver", "Host", "Observation", "PluginError", "SeenRow", "alone", "default_host", "drive", "parts_of"]
