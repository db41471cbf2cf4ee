"""Current SDKs use the HTTP client httpx2, older ones httpx. The transports work with the installed one and prefer httpx2."""

try:
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[no-redef]

__all__ = ["httpx"]
