"""Why a request was not sealed, or its response is not trusted."""

from ._httpx import httpx


class SealClientError(httpx.TransportError):
    """`code`: not_sealable, alias, no_candidate, no_discovery, plain_answer, not_opened, cut or gateway."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
