"""Configuration of the site (``make site``), which builds without a network."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
for folder in ("docs/_site", "sdk", "conformance", "cli"):
    sys.path.insert(0, str(DOCS.parent / folder))

from lpkit import __version__  # noqa: E402

project = "lpkit"
author = "The lpkit developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "api",
    "contents",
]
exclude_patterns = ["_site"]
nitpicky = True
smartquotes = False  # they take the dashes of options
highlight_language = "none"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"lpkit {version}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_favicon = "_site/static/favicon.svg"
html_copy_source = False
html_show_copyright = False
copybutton_prompt_text = "$ "

autodoc_mock_imports = ["torch", "numpy", "triton"]
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
