"""The HTTP client of today's SDKs is httpx2, that of older ones httpx: the transports are for whichever is installed, httpx2 first."""

try:
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[no-redef]

__all__ = ["httpx"]
