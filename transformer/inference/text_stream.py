"""From drawn tokens to text that is shown while it grows: whole characters only, and no part of a stop string."""

from collections.abc import Sequence

from tokenizers import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What bytes that form no character (yet) decode to."""


class TextStream:
    """Pieces of text that joined equal the tokens decoded at once, cut before the first stop string.

    >>> stream = TextStream(tokenizer, stop=["\\n\\n"])
    >>> text = "".join(stream.push(token) for token in tokens) + stream.close()
    """

    def __init__(self, tokenizer: Tokenizer, *, stop: Sequence[str] = ()) -> None:
        """Raises ValueError where a stop string is empty."""
        if not all(stop):
            raise ValueError("a stop string needs at least one character")
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._pending: list[int] = []
        self._taken = 0
        self._held = ""
        self.stopped = False
        """Whether a stop string has come; no more text follows."""

    def push(self, token: int) -> str:
        """Take a token; return the text that is now certain.

        Only the last replacement character can still turn into another: it may be the beginning of a character
        whose other bytes are on their way.
        """
        self._pending.append(token)
        text = self._tokenizer.decode(self._pending, skip_special_tokens=False)
        certain = len(text) - text.endswith(REPLACEMENT)
        self._held += text[self._taken : certain]
        self._taken = certain
        if certain == len(text):
            self._pending, self._taken = [], 0
        return self._release()

    def close(self) -> str:
        """The text that was held back and that nothing can change any more."""
        text = self._tokenizer.decode(self._pending, skip_special_tokens=False)
        self._held += text[self._taken :]
        self._pending, self._taken = [], 0
        return self._release(at_end=True)

    def _release(self, *, at_end: bool = False) -> str:
        """The held text up to a stop string, or to what may become one that begins earlier."""
        if self.stopped:
            return ""
        found = [at for at in map(self._held.find, self._stop) if at >= 0]
        certain = len(self._held) - (0 if at_end else self._beginning())
        end = min([*found, certain])
        self.stopped = end in found
        piece, self._held = self._held[:end], self._held[end:]
        return piece

    def _beginning(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        lengths = (n for stop in self._stop for n in range(1, len(stop)) if self._held.endswith(stop[:n]))
        return max(lengths, default=0)
