"""Text -> tokens -> batches: corpora, tasks, tokenizers, encoded datasets. It imports no other package of ours."""
