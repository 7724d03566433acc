// The page's fixed parts and where they stand: header, sentence, film, stage, heads, notes.

import { make, makeChoice, makeMemo, setText } from "./dom.js";
import { DIRECTIONS, MODES } from "./state.js";
import { makeFilm } from "./film.js";
import { makeHelp, makeNotes } from "./help.js";
import { makePrediction } from "./prediction.js";
import { makeScores } from "./scores.js";
import { makeStage } from "./bigmap.js";

export function makeShell(root, actions) {
  const heading = make("h1", {});
  const runs = make("select", { className: "run", "aria-label": "Run" });
  runs.addEventListener("change", () => actions.run(JSON.parse(runs.value)));
  const facts = make("p", { className: "facts" });
  const helpButton = makePlainButton("Keys and scores", actions.help);
  const header = make("header", {}, heading, runs, facts, helpButton);
  const direction = makeChoice("Direction", DIRECTIONS, actions.direction);
  const mode = makeChoice("Heads", MODES, actions.mode);
  const words = make("p", { id: "readout", className: "readout", role: "status" });
  const prediction = makePrediction();
  const film = makeFilm(actions);
  const sentencePlace = make("div");
  const stage = makeStage(actions);
  const title = make("h2", {});
  const legend = makeLegend();
  const picture = makePlainButton("Save picture", actions.savePicture);
  const table = makePlainButton("Save numbers", actions.saveTable);
  const stagePart = make(
    "section",
    { className: "stage", "aria-label": "Large map" },
    title,
    stage.element,
    legend.element,
    make("p", { className: "take" }, picture, table),
  );
  const gridPlace = make("section", { className: "heads", "aria-label": "All heads" });
  const scores = makeScores();
  const help = makeHelp();
  const alert = make("p", { className: "alert", role: "alert", hidden: true });
  const main = make(
    "main",
    { hidden: true },
    make(
      "section",
      { "aria-label": "Sentence" },
      sentencePlace,
      words,
      make("div", { className: "controls" }, direction.element, mode.element),
      prediction.element,
    ),
    film.element,
    make("div", { className: "columns" }, stagePart, gridPlace, scores.element),
    makeNotes(),
  );
  root.replaceChildren(header, alert, main, help);
  root.classList.add("viewer");
  return {
    main,
    heading,
    runs,
    facts,
    direction,
    mode,
    words,
    prediction,
    film,
    stage,
    title,
    legend,
    scores,
    help,
    sentencePlace,
    gridPlace,
    alert(message) {
      setText(alert, message ?? "");
      alert.hidden = !message;
    },
  };
}

function makePlainButton(textContent, onclick) {
  return make("button", { type: "button", className: "plain", textContent, onclick });
}

// The colours of the numbers between the ends of the scale, and of what is no number.
function makeLegend() {
  const bars = [
    ["0", "1"],
    ["1 less", "1 more"],
  ].map(([low, high]) => {
    const ramp = make("span", { className: "ramp" });
    return { ramp, element: make("span", { className: "scale" }, low, ramp, high) };
  });
  const rest = make("span", { className: "rest" });
  const differs = makeMemo();
  const element = make("p", { className: "legend" }, ...bars.map((bar) => bar.element), rest);
  return {
    element,
    update({ signed, tables, plane }) {
      if (!differs(signed, tables, plane)) return;
      [tables.weights, tables.differences].forEach(({ css }, i) => {
        const stops = Array.from({ length: 17 }, (_, k) => css[Math.round((k * (css.length - 1)) / 16)]);
        bars[i].ramp.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
      });
      bars[1].element.hidden = !signed;
      const parts = ["row: the token that looks", "column: what it looks at", "blank: the future"];
      if (plane.pool > 1) parts.push(`a cell: the greatest of ${plane.pool} × ${plane.pool} weights`);
      if (plane.values.some(Number.isNaN)) parts.push("orange, hatched: not a number (NaN)");
      setText(rest, parts.join(" · "));
    },
  };
}
