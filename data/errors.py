"""The one exception of this package."""


class DataError(ValueError):
    """A text, a task or a setting that cannot be used as it is; its message tells the user what to do."""
