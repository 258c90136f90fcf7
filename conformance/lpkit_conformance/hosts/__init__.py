"""Hosts: drive a plugin through a program as one of vLLM's runners would, and watch every row."""

from lpkit_conformance.hosts.calls import Observation, PluginError, SeenRow
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.hosts.v2 import V2Host

__all__ = ["Observation", "PluginError", "SeenRow", "V1Host", "V2Host"]
