// The film over the steps of training, and what the step shown is compared with.

import { fillSelect, make, setAttribute, setText } from "./dom.js";
import { stepText } from "./numbers.js";
import { SAME_STEP } from "./state.js";

const FRAME_MILLISECONDS = 450;
const MOST_TICKS = 7;
const NOTHING = "";

// actions: {step(index), compare(name | null, step)}.
export function makeFilm(actions) {
  const play = make("button", { type: "button", className: "play", onclick: toggle });
  const range = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step of training" });
  range.addEventListener("input", () => {
    stop();
    actions.step(Number(range.value));
  });
  const ticks = make("div", { className: "ticks", "aria-hidden": "true" });
  const now = make("output", { className: "now" });
  const reel = make("div", { className: "reel" }, play, make("div", { className: "track" }, range, ticks), now);
  const against = make("select", { id: "against" });
  const at = make("select", { "aria-label": "Step to compare with" });
  against.addEventListener("change", () =>
    actions.compare(against.value === NOTHING ? null : JSON.parse(against.value), null),
  );
  at.addEventListener("change", () =>
    actions.compare(undefined, at.value === SAME_STEP ? SAME_STEP : Number(at.value)),
  );
  const label = make("label", { for: "against", textContent: "Compare with" });
  const comparison = make("div", { className: "comparison" }, label, against, at);
  const element = make("section", { className: "film", "aria-label": "Film of training" }, reel, comparison);
  let timer = null;
  let shown = null;

  function stop() {
    clearInterval(timer);
    timer = null;
    setText(play, "Play");
  }
  function toggle() {
    if (timer !== null || shown.view.frames.length < 2) {
      stop();
      return;
    }
    if (shown.index === shown.view.frames.length - 1) actions.step(0);
    setText(play, "Pause");
    timer = setInterval(() => {
      if (shown.index >= shown.view.frames.length - 1) stop();
      else actions.step(shown.index + 1);
    }, FRAME_MILLISECONDS);
  }
  return {
    element,
    toggle,
    stop,
    // others: the names of the runs that the one shown can be compared with; reference: {name, at, view} | null.
    update(view, index, others, reference) {
      shown = { view, index };
      const last = view.frames.length - 1;
      reel.hidden = last < 1;
      comparison.hidden = last < 1 && others.length === 0;
      element.hidden = comparison.hidden;
      range.max = last;
      if (Number(range.value) !== index) range.value = index;
      setAttribute(range, "aria-valuetext", stepText(view.frames[index].step));
      setText(now, stepText(view.frames[index].step));
      if (timer === null) setText(play, "Play");
      if (last > 0) drawTicks(ticks, view);
      const own = last > 0 ? [[JSON.stringify(view.name), "another step of this run"]] : [];
      const runs = others.map((name) => [JSON.stringify(name), name]);
      fillSelect(
        against,
        [[NOTHING, "nothing"], ...own, ...runs],
        reference ? JSON.stringify(reference.name) : NOTHING,
      );
      at.hidden = !reference;
      if (reference) fillSelect(at, stepChoices(view, reference), String(reference.at));
    },
  };
}

function stepChoices(view, reference) {
  const steps = reference.view.frames.map(({ step }) => [String(step), stepText(step)]);
  return reference.name === view.name ? steps : [[SAME_STEP, "the same step"], ...steps];
}

// A few steps written under the slider, where its thumb stands when it shows them.
function drawTicks(ticks, view) {
  const last = view.frames.length - 1;
  const count = Math.min(last, MOST_TICKS - 1);
  const indices = Array.from({ length: count + 1 }, (_, k) => Math.round((k * last) / count));
  const signature = indices.map((index) => view.frames[index].step).join(" ");
  if (ticks.dataset.steps === signature) return;
  ticks.dataset.steps = signature;
  ticks.replaceChildren(
    ...indices.map((index) => {
      const tick = make("span", { textContent: view.frames[index].step.toLocaleString("en") });
      tick.style.setProperty("--at", index / last);
      return tick;
    }),
  );
}
