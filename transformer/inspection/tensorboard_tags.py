"""What a run's charts and pictures are called in TensorBoard, what is said of each, and how they are grouped.

TensorBoard sorts by name and opens the first two groups of its first tab: `attention` and `loss`. A group is what
stands before the first slash.
"""

from collections.abc import Mapping

from tensorboard.plugins.custom_scalar import layout_pb2

MAX_TAGS = 150
"""More tags than this and nobody finds one."""

SHOWN_LAYERS = 36
"""Layers that have tags of their own; three each, and the others are fewer than MAX_TAGS - 3 · SHOWN_LAYERS."""

BEST_INDUCTION = "attention/best_induction_head"
BEST_PREVIOUS_TOKEN = "attention/best_previous_token_head"
COPY_GAP = "attention/copy_gap"
IN_CONTEXT = "attention/in_context"
SINK_RATE = "attention/sink_rate"
PROBE_SECONDS = "speed/probe_seconds"

MAP, ENTROPY, MAX_LOGIT, SCORE = "attention/layer_{}", "per_layer/entropy_{}", "per_layer/max_logit_{}", "scores/{}"

DESCRIPTIONS = {
    "loss/train": "Loss on the batch of this step, in nats a token.",
    "loss/validation": "Loss on text that is never trained on, in nats a token.",
    "optimizer/learning_rate": "Learning rate of this step.",
    "optimizer/gradient_norm": "Length of the gradient before it is clipped.",
    "speed/tokens_per_second": "Tokens trained on a second, since the last point.",
    "validation/bits_per_byte": "Validation loss in bits a byte of text: it compares runs with different tokenizers.",
    "validation/accuracy": "Share of tokens that the task determines and the model predicts.",
    "sample": "Text that the model writes.",
    BEST_INDUCTION: "Of all heads the highest weight on the token that followed the same token earlier, on repeated "
    "random tokens. Near 1: a head copies what came next the last time.",
    BEST_PREVIOUS_TOKEN: "Of all heads the highest weight on the token just before, on repeated random tokens. "
    "Near 1: a head always looks one back; induction heads in a later layer build on such heads.",
    COPY_GAP: "Loss on random tokens minus loss on their repetition, in nats. 0: no copying. "
    "It rises to the logarithm of the vocabulary's size when copying works.",
    IN_CONTEXT: "Loss late in the context minus loss early in it, in nats. Negative: the model uses what it has read.",
    SINK_RATE: "Weight on the first token, the mean over all heads and queries. "
    "A head with nothing to do often rests there.",
    PROBE_SECONDS: "Seconds that the last measurement of the heads took.",
}
DESCRIPTIONS_BY_START = {
    "attention/layer_": "Who looks at whom in the probe sentence, all heads of the layer. Move the slider: a film of "
    "training. The tab Attention shows the same with every number.",
    "per_layer/entropy_": "How widely the layer's heads spread their attention, the mean over its heads. "
    "1: over all tokens evenly; 0: on one token.",
    "per_layer/max_logit_": "The largest attention logit of the layer, before softmax. "
    "Growth without end while the entropy falls to 0 means that attention collapses.",
    "scores/": "One number a head: rows are layers, columns are heads.",
}

LAYOUT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Learning": {
        "Loss, on training and on validation text": ("loss/train", "loss/validation"),
        "Learning rate": ("optimizer/learning_rate",),
        "Length of the gradient": ("optimizer/gradient_norm",),
    },
    "Heads form": {
        "Best previous-token head, best induction head": (BEST_PREVIOUS_TOKEN, BEST_INDUCTION),
        "Copying: loss saved on a repetition": (COPY_GAP,),
        "Weight on the first token": (SINK_RATE,),
        "Loss late minus early in the context": (IN_CONTEXT,),
    },
    "Attention per layer": {
        "Entropy: 1 is even, 0 is on one token": (ENTROPY.format(r"\d+"),),
        "Largest logit": (MAX_LOGIT.format(r"\d+"),),
    },
    "Machine": {
        "Tokens a second": ("speed/tokens_per_second",),
        "Seconds a measurement of the heads": (PROBE_SECONDS,),
    },
}
"""Groups of charts, each with its tags (regular expressions), in the order in which a run is read."""


def description(tag: str) -> str:
    """What TensorBoard says of a tag; nothing of one that is unknown."""
    starts = (text for start, text in DESCRIPTIONS_BY_START.items() if tag.startswith(start))
    return DESCRIPTIONS.get(tag) or next(starts, "")


def shown_layers(n_layers: int) -> tuple[int, ...]:
    """The layers that have tags of their own: all, or SHOWN_LAYERS of them, the first and last among them."""
    if n_layers <= SHOWN_LAYERS:
        return tuple(range(n_layers))
    return tuple(round(i * (n_layers - 1) / (SHOWN_LAYERS - 1)) for i in range(SHOWN_LAYERS))


def layers_note(n_layers: int) -> str | None:
    """A line for the user where not every layer is shown."""
    if n_layers <= SHOWN_LAYERS:
        return None
    return (
        f"TensorBoard's charts and pictures show {SHOWN_LAYERS} of the {n_layers} layers, evenly spaced; its tab "
        "Attention shows all"
    )


def scalar_layout() -> layout_pb2.Layout:
    """The tab Custom Scalars; the same for every run, so that runs share its charts."""
    return layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=title,
                chart=[
                    layout_pb2.Chart(
                        title=chart, multiline=layout_pb2.MultilineChartContent(tag=[f"{tag}$" for tag in tags])
                    )
                    for chart, tags in charts.items()
                ],
            )
            for title, charts in LAYOUT.items()
        ]
    )
