"""Text in, text out: prompts become tokens, and drawn tokens become text while they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenizers import Tokenizer

from transformer.inference.generation import Generation
from transformer.inference.sampling import Sampling
from transformer.inference.text_stream import TextStream
from transformer.model.transformer import Transformer

END_OF_TEXT = "<|endoftext|>"
"""Special token between the documents of a corpus; drawing it ends a text."""


@dataclass
class Continuation:
    """What a model has written so far in one row."""

    seed: int
    text: str = ""
    tokens: int = 0
    finish: Literal["length", "stop", "end"] = "length"
    """Why it ended: all tokens drawn, a stop string, or the end of the text."""


class TextGeneration:
    """Continues prompts of token ids, and shows each row's text as it grows.

    >>> writing = TextGeneration(model, tokenizer, [prompt], seeds=[1], sampling=Sampling())
    >>> for row, piece in writing.pieces(100): print(piece, end="")
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        *,
        seeds: Sequence[int],
        sampling: Sampling,
        stop: Sequence[str] = (),
        use_cache: bool = True,
    ) -> None:
        """An empty prompt begins with `start_token`. Raises ValueError where a stop string is empty."""
        prompts = [list(prompt) or [start_token(tokenizer)] for prompt in prompts]
        self._end = tokenizer.token_to_id(END_OF_TEXT)
        self._generation = Generation(
            model, prompts, seeds=seeds, sampling=sampling, end_token=self._end, use_cache=use_cache
        )
        self._streams = [TextStream(tokenizer, stop=stop) for _ in prompts]
        self.rows = [Continuation(seed) for seed in seeds]

    def pieces(self, n_tokens: int) -> Iterator[tuple[int, str]]:
        """Draw up to `n_tokens` tokens per row: yields a row's index and the text that is new in it."""
        for drawn in self._generation.steps(n_tokens):
            for index, token in drawn:
                continuation, stream = self.rows[index], self._streams[index]
                continuation.tokens += 1
                if token == self._end:
                    continuation.finish = "end"
                    continue
                yield from self._add(index, stream.push(token))
                if stream.stopped:
                    continuation.finish = "stop"
                    self._generation.rows[index].finished = True
        for index, stream in enumerate(self._streams):
            yield from self._add(index, stream.close())
            if stream.stopped:
                self.rows[index].finish = "stop"

    def _add(self, index: int, piece: str) -> Iterator[tuple[int, str]]:
        if piece:
            self.rows[index].text += piece
            yield index, piece


def start_token(tokenizer: Tokenizer) -> int:
    """What an empty prompt begins with: the end of the text before, else a new line, else the first token."""
    for text in (END_OF_TEXT, "\n", "Ċ"):  # Ċ is the newline of byte-level vocabularies
        token = tokenizer.token_to_id(text)
        if token is not None:
            return int(token)
    return 0
