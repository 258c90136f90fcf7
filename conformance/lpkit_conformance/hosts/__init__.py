"""Hosts: drive a plugin through a program as one of vLLM's runners would, and watch every row."""

from lpkit_conformance.hosts.base import Driver, Host
from lpkit_conformance.hosts.calls import Observation, PluginError, SeenRow
from lpkit_conformance.hosts.parts import drive, parts_of

__all__ = ["Driver", "Host", "Observation", "PluginError", "SeenRow", "drive", "parts_of"]
