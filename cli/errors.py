"""What the command line tells without a traceback."""


class ConfigError(ValueError):
    """What a user has to mend in a configuration: one line per problem."""
