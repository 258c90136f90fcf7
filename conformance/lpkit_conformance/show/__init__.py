"""``lpkit show``: what processors do to one request, token by token.

:mod:`.model` is the model that speaks, :mod:`.playing` runs the request in lpkit's own runtime with and without the
processors, in a child process (:mod:`.child`) of :mod:`.run`, and :mod:`.engine` in a real vLLM; :mod:`.results` holds
what was seen.
"""
