// What stands still on the page: how to read it, what to beware of, and the keys.

import { make } from "./dom.js";
import { KEYS } from "./keyboard.js";
import { SCORES } from "./scores.js";

export function makeHelp() {
  const close = make("button", { type: "button", textContent: "Close", onclick: () => element.close() });
  const keys = KEYS.flatMap(([key, action]) => [make("dt", { textContent: key }), make("dd", { textContent: action })]);
  const scores = SCORES.flatMap(([, name, meaning]) => [
    make("dt", { textContent: name }),
    make("dd", { textContent: meaning }),
  ]);
  const element = make(
    "dialog",
    { className: "help", "aria-label": "Help" },
    make("h2", { textContent: "Keys" }),
    make("dl", {}, ...keys),
    make("h2", { textContent: "Scores" }),
    make("dl", {}, ...scores),
    close,
  );
  return element;
}

export function makeNotes() {
  const notes = [
    [
      "Attention is not explanation.",
      " A strong map may change nothing in what the model says. The knock-out beside it tells: it is what the model loses without the head.",
    ],
    [
      "Why the first token collects weight.",
      " The weights of a row always sum to 1. A head that finds nothing to attend to has to put them somewhere, and every token can see the first: it becomes a sink.",
    ],
  ];
  return make(
    "footer",
    {},
    ...notes.map(([strong, rest]) => make("p", {}, make("strong", { textContent: strong }), rest)),
  );
}
