"""Text that XML and HTML can hold."""

from __future__ import annotations

import re

_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def xml_text(value: str) -> str:
    """``value`` without the characters that XML cannot hold, which a plugin's messages may have."""
    return _NOT_XML.sub("?", value)
