// What the page shows, and its place in the address: a reload or a sent link shows the same.
//
// run, step, layer, head, token, direction ("to" | "by"), mode ("head" | "mean" | "max"), and what is compared with:
// against (the name of a run) and at (one of its steps; "same": the step that is shown). A step of null is the newest.

export const DIRECTIONS = [
  ["to", "attends to"],
  ["by", "attended by"],
];
export const MODES = [
  ["head", "this head"],
  ["mean", "mean of the layer"],
  ["max", "max of the layer"],
];
export const SAME_STEP = "same";

const NUMBERS = ["step", "layer", "head", "token"];
const START = {
  run: null,
  step: null,
  layer: null,
  head: null,
  token: null,
  direction: "to",
  mode: "head",
  against: null,
  at: null,
};

// The state in an address's hash; what is missing or makes no sense takes its default.
export function readHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...START, run: given.get("run"), against: given.get("against") };
  for (const name of NUMBERS) if (/^\d{1,9}$/.test(given.get(name) ?? "")) state[name] = Number(given.get(name));
  if (DIRECTIONS.some(([value]) => value === given.get("direction"))) state.direction = given.get("direction");
  if (MODES.some(([value]) => value === given.get("mode"))) state.mode = given.get("mode");
  const at = given.get("at") ?? "";
  if (state.against !== null) state.at = /^\d{1,9}$/.test(at) ? Number(at) : SAME_STEP;
  return state;
}

// The hash of a state; only what differs from the default stands in it.
export function writeHash(state) {
  const entries = Object.entries(state).filter(([name, value]) => value !== null && value !== START[name]);
  return `#${new URLSearchParams(entries)}`;
}

// The state with every number inside what the view has; a first visit starts where there is something to see.
export function fitState(state, view, fresh) {
  const fitted = { ...state };
  const last = view.frames.length - 1;
  if (state.step !== null && nearestFrame(view, state.step) === last) fitted.step = null;
  const lively = livelyHead(view);
  fitted.layer = state.layer !== null && state.layer < view.n_layers ? state.layer : lively[0];
  fitted.head = state.head !== null && state.head < view.n_heads ? state.head : lively[1];
  if (state.token !== null && state.token >= view.tokens.length) fitted.token = null;
  if (fresh) fitted.token = view.tokens.length - 1;
  return fitted;
}

// The frame of a step, or the last before it; null is the newest.
export function nearestFrame(view, step) {
  if (step === null) return view.frames.length - 1;
  const after = view.frames.findIndex((frame) => frame.step > step);
  return after < 0 ? view.frames.length - 1 : Math.max(after - 1, 0);
}

// The head with the most telling badge at the newest step: [layer, head].
function livelyHead(view) {
  const badges = view.frames[view.frames.length - 1]?.report?.badges;
  for (const badge of badges ? ["induction", "previous-token", "duplicate"] : [])
    for (let layer = view.n_layers - 1; layer >= 0; layer--)
      for (let head = 0; head < view.n_heads; head++) if (badges[layer][head].includes(badge)) return [layer, head];
  return [0, 0];
}
