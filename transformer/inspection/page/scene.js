// From the state and the frames it names to what is drawn: no element is touched here.

import { framePlane, subtractPlanes, weightsOf } from "./maps.js";
import { stepText } from "./numbers.js";

const differences = new WeakMap();

function differenceOf(now, then) {
  let known = differences.get(now);
  if (known?.then !== then) differences.set(now, (known = { then, plane: subtractPlanes(now, then) }));
  return known.plane;
}

// What a map shows, in words: "layer 1 · head 3".
function headName({ layer, head, mode }) {
  return `layer ${layer} · ${mode === "head" ? `head ${head}` : `${mode} over its heads`}`;
}

// shown is {view, index, frame, reference}; reference is null or {view, index, frame} of what it is compared with.
// passing is what the pointer or the focus is on: {token, cell, head}, each null where it is on none.
export function makeScene(shown, state, passing, look) {
  const { view, index, frame, reference } = shown;
  const [layer, head] = passing.head ?? [state.layer, state.head];
  const chosen = { layer, head, mode: passing.head ? "head" : state.mode };
  const now = framePlane(frame, view, layer, head, chosen.mode);
  const then = reference && framePlane(reference.frame, reference.view, layer, head, chosen.mode);
  const plane = reference ? differenceOf(now, then) : now;
  const locked = state.token;
  const token = locked ?? passing.token;
  const name = headName(chosen);
  const nowName = frameName(view, index, reference);
  return {
    view,
    index,
    frame,
    ...chosen,
    ...look,
    name,
    nowName,
    locked,
    token,
    plane,
    now,
    then,
    direction: state.direction,
    report: view.frames[index].report,
    referenceFrame: reference?.frame ?? null,
    signed: reference !== null,
    pooled: plane.pool > 1,
    weights: token === null ? null : weightsOf(plane, token, state.direction),
    cell: passing.cell ?? pairOf(locked, passing.token, state.direction),
    planes: planesOf(name, nowName, now, then, plane, reference),
  };
}

function planesOf(name, nowName, now, then, plane, reference) {
  if (!reference) return [{ plane: now, signed: false, caption: nowName, label: `${name}, ${nowName}` }];
  const thenName = frameName(reference.view, reference.index, true);
  return [
    { plane: now, signed: false, caption: nowName, label: `${name}, ${nowName}` },
    { plane: then, signed: false, caption: thenName, label: `${name}, ${thenName}` },
    { plane, signed: true, caption: "difference", label: `${name}, ${nowName} less ${thenName}` },
  ];
}

function frameName(view, index, compared) {
  const step = stepText(view.frames[index].step);
  return compared ? `${view.name} · ${step}` : step;
}

// The cell of a locked token and another one; null where that is in the future.
function pairOf(locked, other, direction) {
  if (locked === null || other === null || other === locked) return null;
  const [query, key] = direction === "to" ? [locked, other] : [other, locked];
  return key > query ? null : { query, key };
}

// Why two runs cannot be laid over each other; null where they can.
export function whyIncomparable(view, other) {
  if (view.n_layers !== other.n_layers || view.n_heads !== other.n_heads)
    return `${other.name} has ${other.n_layers} × ${other.n_heads} heads, ${view.name} has ${view.n_layers} × ${view.n_heads}: they cannot be compared.`;
  const texts = [view, other].map(({ tokens }) => JSON.stringify(tokens.map(({ text }) => text)));
  return texts[0] === texts[1]
    ? null
    : `${other.name} looks at another sentence than ${view.name}: they cannot be compared.`;
}
