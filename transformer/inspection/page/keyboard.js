// Every action has a key. Arrows move within what has the focus: the heads, the map, else the tokens.

export const KEYS = [
  ["← →", "the token before, after"],
  ["Home End", "the first, the last token"],
  ["Shift ← →", "the head before, after"],
  ["Shift ↑ ↓, Page Up Page Down", "the layer above, below"],
  ["← → ↑ ↓ in the map", "move the cell that is read; Enter chooses its token"],
  ["← → ↑ ↓ among the heads", "the head beside, above, below"],
  ["[ ]", "the step before, after"],
  ["Space or P", "play, pause (Space where no button has the focus)"],
  ["D", "attends to, attended by"],
  ["M", "one head, mean, max of the layer"],
  ["C", "compare with the first step, or stop"],
  ["Esc", "let go of the cell, the token"],
  ["?", "this help"],
];
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// actions: {token(by), tokenEnd(last), head(layers, heads), cell(rows, columns), pickCell(), frame(by), play(),
// direction(), mode(), compare(), clear(), help()}; where(target): "heads" | "map" | "field" | "button" | "page", or
// null where no key is listened to.
export function listenToKeys(target, where, actions) {
  target.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const place = where(event.target);
    const action = place && actionOf(event, place, actions);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf(event, place, actions) {
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey && place !== "field") return () => actions.head(...arrow);
  if (arrow) return arrowAction(arrow, place, actions);
  if (place === "field" && (event.key === " " || /^\w$|^Home$|^End$|^Page/.test(event.key))) return null;
  switch (event.key) {
    case "Home":
    case "End":
      return place === "map" ? null : () => actions.tokenEnd(event.key === "End");
    case "PageUp":
      return () => actions.head(-1, 0);
    case "PageDown":
      return () => actions.head(1, 0);
    case "Enter":
      return place === "map" ? actions.pickCell : null;
    case "[":
      return () => actions.frame(-1);
    case "]":
      return () => actions.frame(1);
    case " ":
      return place === "button" || place === "heads" ? null : actions.play;
    case "Escape":
      return actions.clear;
    case "?":
      return actions.help;
    default:
      return letterAction(event.key.toLowerCase(), actions);
  }
}

function arrowAction([rows, columns], place, actions) {
  if (place === "field") return null;
  if (place === "heads") return () => actions.head(rows, columns);
  if (place === "map") return () => actions.cell(rows, columns);
  return columns ? () => actions.token(columns) : null;
}

function letterAction(letter, actions) {
  return { p: actions.play, d: actions.direction, m: actions.mode, c: actions.compare }[letter] ?? null;
}
