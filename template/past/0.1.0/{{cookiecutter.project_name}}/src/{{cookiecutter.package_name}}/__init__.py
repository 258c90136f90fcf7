"""A logits processor for vLLM."""

from {{ cookiecutter.package_name }}.processor import {{ cookiecutter.class_name }}

__all__ = ["{{ cookiecutter.class_name }}"]
