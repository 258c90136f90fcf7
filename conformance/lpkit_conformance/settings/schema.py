"""``[tool.lpkit]`` as a JSON schema: what validate-pyproject, and editors that ask it, check and complete."""

from __future__ import annotations

from typing import Any

from lpkit_conformance.documentation import DOCUMENTATION
from lpkit_conformance.settings.cases import MARKERS
from lpkit_conformance.settings.hosts import HOSTS

_CASE = {
    "type": "object",
    "description": "Fields of SamplingParams that switch the plugin on; a plugin's own arguments are in extra_args.",
    "properties": {
        "extra_args": {"type": "object", "description": "What a client sends as vllm_xargs; words are strings."},
        "prompt_token_ids": {"$ref": "#/definitions/token_ids", "description": "What the prompts end with."},
        "output_token_ids": {"$ref": "#/definitions/token_ids", "description": "Tokens that the model emits."},
        "reasoning": {
            "type": "object",
            "description": "Markers of a thought, as the engine's reasoning_config has them.",
            "properties": {name: {"$ref": "#/definitions/token_ids"} for name in MARKERS},
            "required": ["start", "end"],
            "additionalProperties": False,
        },
        "generated": {"type": "integer", "minimum": 0, "description": "How many tokens a request comes with."},
    },
}

_AGAINST = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"target": {"type": "string"}, "case": _CASE},
            "required": ["target"],
            "additionalProperties": False,
        },
    ]
}

_REASON = {"type": "string", "pattern": r"\S"}

_EXPECTED = {
    "oneOf": [
        _REASON,
        {
            "type": "object",
            "properties": {
                "reason": _REASON,
                "until": {"description": "A date; from the day after it, the failure is an error again."},
            },
            "required": ["reason"],
            "additionalProperties": False,
        },
    ]
}


def tool_schema(tool_name: str = "lpkit") -> dict[str, Any]:
    """The JSON schema (draft 7) of ``[tool.lpkit]``; an entry point of ``validate_pyproject.tool_schema``."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema",
        "$id": f"{DOCUMENTATION}reference/settings/",
        "title": f"[tool.{tool_name}]",
        "description": "What lpkit check and lpkit bench take from a plugin's project.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "cases": {
                "type": "array",
                "items": _CASE,
                "description": "How to switch the plugin on, one request each.",
            },
            "hosts": {
                "type": "array",
                "items": {"enum": list(HOSTS)},
                "minItems": 1,
                "description": "The runners to check; by default those that the plugin's interfaces fit.",
            },
            "vocab_size": {"type": "integer", "minimum": 128, "multipleOf": 128},
            "max_num_seqs": {"type": "integer", "minimum": 1},
            "environment": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Environment variables that the plugin reads.",
            },
            "expected_failures": {
                "type": "object",
                "patternProperties": {"^[Ll][Pp][0-9]{3}$": _EXPECTED},
                "additionalProperties": False,
                "description": "Failures that the project knows about: a reason, and a date if it is to end.",
            },
            "against": {
                "type": "array",
                "items": _AGAINST,
                "description": "What lpkit bench compares the project's processors with.",
            },
        },
        "definitions": {"token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    }
