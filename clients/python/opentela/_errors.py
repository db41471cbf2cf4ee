"""Errors of functions. Each message names the cause and the next step."""


class OtelaError(Exception):
    """The gateway refused a request, cannot be reached, or the function cannot be sent."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status


class FunctionError(Exception):
    """The function has no result for one input: it raised, or no node could run it. `code` is the line's error code."""

    # For a call that did not run: the name of the function whose call failed first.
    cause = None

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code

    @classmethod
    def of_dependency(cls, name, cause, error):
        """The call did not run. `cause`: the name of the function that failed first in the chain of calls."""
        if isinstance(error, FunctionError) and error.cause:
            cause, error = error.cause, error.__cause__
        made = cls(f"{name} did not run, because a call of {cause}, on which it depends, failed: {error or 'it was cancelled'}", "dependency_failed")
        made.cause, made.__cause__ = cause, error
        return made

    def __reduce__(self):
        return type(self), (str(self), self.code)
