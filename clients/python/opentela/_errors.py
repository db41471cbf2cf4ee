"""Errors of functions. Each message names the cause and the next step."""


class OtelaError(Exception):
    """The gateway refused a request, cannot be reached, or the function cannot be sent."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status


class FunctionError(Exception):
    """The function has no result for one input: it raised, or no node could run it. `code` is the line's error code."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code

    def __reduce__(self):
        return type(self), (str(self), self.code)
