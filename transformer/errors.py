"""What a user can cause and mend."""


class UserError(ValueError):
    """One message that says what is wrong, where, and what to do; the command line shows it without a traceback."""


class NewerFormatError(UserError):
    """A file was written by a later version of this program."""


class DivergedError(RuntimeError):
    """Training produced a loss or gradient that is not a number; the message says where."""
