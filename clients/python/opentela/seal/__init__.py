"""httpx transports that seal prompts to the node that answers: the OpenTela gateway in between cannot read them.

    client = OpenAI(base_url=..., http_client=httpx2.Client(transport=SealedTransport(pins={"eth": "ROOT KEY"})))
"""

try:
    from .errors import SealClientError
    from .evidence import AsyncEvidenceVerifier, Evidence, EvidenceVerifier
    from .transport import AsyncSealedTransport, SealedTransport
except ModuleNotFoundError as missing:
    raise ImportError(f"opentela.seal needs the package {missing.name}: pip install 'opentela[seal]'") from missing

__all__ = ["AsyncEvidenceVerifier", "AsyncSealedTransport", "Evidence", "EvidenceVerifier", "SealClientError", "SealedTransport"]
