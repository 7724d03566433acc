// The sentence: one button a token, its text literally, and the weight that it gives or receives.
//
// A token whose characters cannot be seen keeps its text in the document, and the style sheet shows marks in its place.
// Tokens that only together make a character stand under it.

import { make, setAttribute, setText } from "./dom.js";
import { markedText, spokenName } from "./names.js";
import { weightText } from "./numbers.js";
import { colourIndex } from "./colours.js";

const WIDE_CHARACTERS = 12;
const [MEDIUM_SENTENCE, LONG_SENTENCE] = [40, 96];

// actions: {lock(token), hover(token | null)}.
export function makeSentence(view, actions) {
  const cells = view.tokens.map((token, index) => makeToken(token, index));
  const element = make("div", { className: "sentence", role: "group", "aria-label": "Sentence, token by token" });
  element.append(...arrange(view, cells));
  element.classList.toggle("medium", view.tokens.length > MEDIUM_SENTENCE);
  element.classList.toggle("long", view.tokens.length > LONG_SENTENCE);
  const indexOf = (target) => Number(target.closest(".token")?.dataset.index ?? -1);
  element.addEventListener("click", (event) => {
    if (indexOf(event.target) >= 0) actions.lock(indexOf(event.target));
  });
  element.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse") actions.hover(indexOf(event.target) >= 0 ? indexOf(event.target) : null);
  });
  element.addEventListener("pointerleave", () => actions.hover(null));
  element.addEventListener("focusin", (event) => {
    if (event.target.matches(":focus-visible")) actions.hover(indexOf(event.target));
  });
  element.addEventListener("focusout", () => actions.hover(null));
  let stop = cells[0];
  let locked = null;
  return {
    element,
    update(scene) {
      for (const cell of cells) paintToken(cell, scene);
      if (locked) setAttribute(locked.button, "aria-pressed", "false");
      const previous = locked;
      locked = scene.locked === null ? null : cells[scene.locked];
      if (locked) setAttribute(locked.button, "aria-pressed", "true");
      stop.button.tabIndex = -1;
      stop = locked ?? stop;
      stop.button.tabIndex = 0;
      if (locked !== previous) scrollTo(element, locked);
    },
    focus(index) {
      stop.button.tabIndex = -1;
      stop = cells[index];
      stop.button.tabIndex = 0;
      stop.button.focus({ preventScroll: true });
      stop.button.scrollIntoView({ block: "nearest", inline: "nearest" });
    },
    focused: () => (element.contains(document.activeElement) ? indexOf(document.activeElement) : null),
  };
}

// Scrolls a long sentence, never the page.
function scrollTo(element, cell) {
  if (cell === null || element.scrollHeight <= element.clientHeight) return;
  const [box, token] = [element, cell.button].map((part) => part.getBoundingClientRect());
  if (token.top < box.top) element.scrollTop += token.top - box.top;
  if (token.bottom > box.bottom) element.scrollTop += token.bottom - box.bottom;
}

function makeToken(token, index) {
  const text = make("span", { className: "text", textContent: token.text });
  const marked = markedText(token.text);
  const hidden = marked !== token.text;
  if (/^ [^\s]/.test(token.text) && marked === `·${token.text.slice(1)}`) text.classList.add("lead");
  else if (hidden) {
    text.classList.add("marked");
    text.setAttribute("data-marked", marked);
  }
  if (marked.length > WIDE_CHARACTERS) text.classList.add("wide");
  const weight = make("span", { className: "weight" });
  const button = make(
    "button",
    { type: "button", className: "token", tabIndex: -1, "aria-pressed": "false" },
    text,
    weight,
  );
  button.dataset.index = index;
  if (token.special) button.classList.add("special");
  if (token.bytes) button.classList.add("byte");
  const spoken = hidden || token.special || token.bytes || token.text.length > 40 ? spokenName(token) : null;
  if (spoken) button.setAttribute("aria-label", spoken);
  return { button, weight, spoken, shown: undefined };
}

// The buttons in order, with the characters that several make, the boundary of the prompt, and line ends.
function arrange(view, cells) {
  const groups = new Map(view.groups.map(([start, end, text]) => [start, { end, text }]));
  const nodes = [];
  for (let i = 0; i < cells.length;) {
    if (i === view.prompt_length && i > 0)
      nodes.push(make("span", { className: "boundary", textContent: "generated" }));
    const group = groups.get(i);
    if (group) {
      const character = make("span", { className: "character", textContent: group.text, "aria-hidden": "true" });
      const members = cells.slice(i, group.end).map((cell) => cell.button);
      nodes.push(make("span", { className: "group", role: "group", "aria-label": group.text }, character, ...members));
    } else {
      nodes.push(cells[i].button);
      if (view.tokens[i].text.endsWith("\n")) nodes.push(make("br"));
    }
    i = group ? group.end : i + 1;
  }
  return nodes;
}

function paintToken(cell, { weights, signed, tables, pooled }) {
  const value = weights === null ? undefined : weights[Number(cell.button.dataset.index)];
  if (Object.is(cell.shown, value) && cell.tables === tables && cell.signed === signed && cell.pooled === pooled)
    return;
  Object.assign(cell, { shown: value, tables, signed, pooled });
  const { button, weight, spoken } = cell;
  const text = weightText(value, signed);
  setText(weight, pooled && text && text !== "0" ? `≤${text}` : text);
  button.classList.toggle("future", value === null);
  button.classList.toggle("nan", Number.isNaN(value));
  const table = signed ? tables.differences : tables.weights;
  const step = value === null || value === undefined || Number.isNaN(value) ? null : colourIndex(value, signed);
  button.style.backgroundColor = step === null ? "" : table.css[step];
  button.style.color = step === null ? "" : table.ink[step];
  if (spoken) setAttribute(button, "aria-label", text ? `${spoken}, ${text}` : spoken);
}
