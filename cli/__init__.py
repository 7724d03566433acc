"""The `attn` command: configuration files, words for people, and the wiring of the other two packages."""
