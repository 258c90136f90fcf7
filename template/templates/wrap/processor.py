{%- set class = cookiecutter.class_name -%}
{%- set module, _, name = cookiecutter.wraps.partition(":") -%}
{%- set target = cookiecutter._wrapped_name or name -%}
"""`{{ cookiecutter.wraps }}` on both of vLLM's runners."""

from __future__ import annotations

import lpkit
{{ cookiecutter._wrap_import or "from " ~ module ~ " import " ~ name }}
{% if cookiecutter._wrap_kind == "class" %}

class {{ class }}(lpkit.Bridged):
    """On V1 the engine gets the V1 class itself. On V2 the bridge reports its rows to it as the V1 engine does."""

    wraps = {{ target }}

    # Keys of `SamplingParams.extra_args`: on V2 a request that has none of them is not shown to the V1 class, at no
    # cost. Empty, every request is shown to it.
{%- if cookiecutter._wrap_keys %} These were found in its module; are they all it looks at?
    # keys = ({{ cookiecutter._wrap_keys }})
{%- endif %}
    keys = ()

    # Part of the token lists that it reads: "tokens", "length" or "none". Less is cheaper: see the README.
    history = "tokens"
{%- elif cookiecutter._wrap_kind == "callable" %}
# A request switches it on with `{{ cookiecutter.package_name }}` in `SamplingParams.extra_args`.
{{ class }} = lpkit.bridge({{ target }}, keys="{{ cookiecutter.package_name }}")
{%- elif cookiecutter._wrap_kind == "objects" %}
# Makes an object for each request with one of these constructor arguments; the engine provides the others. For other
# names in requests, give a mapping from keys to arguments.
{{ class }} = lpkit.bridge({{ target }}, keys=({{ cookiecutter._wrap_keys }}))
{%- else %}
# Called once for each request. If it returns None, the request does not use the plugin, at no cost.
{{ class }} = lpkit.bridge({{ target }})
{%- endif %}
