"""Refuses names that Python could not import; `lpkit new` checks more, and earlier."""

import keyword
import re
import sys

project = "{{ cookiecutter.project_name }}"
names = ("{{ cookiecutter.package_name }}", "{{ cookiecutter.class_name }}")

if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", project):
    sys.exit(f"{project!r} is not a valid distribution name")
for name in names:
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        sys.exit(f"{name!r} is not a name that Python can import")
    if name in sys.stdlib_module_names or name in ("lpkit", "numpy", "pytest", "torch", "vllm"):
        sys.exit(f"{name!r} is taken by another package")
if "{{ cookiecutter.style }}" == "wrap" and not re.fullmatch(r"[\w.]+:[\w.]+", "{{ cookiecutter.wraps }}"):
    sys.exit("the style 'wrap' needs wraps=module:Class")
