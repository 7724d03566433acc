// What is known of the chosen head: its scores beside a uniform head's, its badges, and what the model loses without it.

import { make, makeMemo, setText } from "./dom.js";
import { drawChart } from "./chart.js";
import { plainText } from "./numbers.js";

export const SCORES = [
  ["previous_token", "previous token", "weight on the token just before"],
  ["induction", "induction", "weight on the token that followed the last time this token stood here"],
  ["duplicate_token", "duplicate token", "weight on earlier copies of the same token"],
  ["first_token", "first token", "weight on the very first token: a sink, where it is high"],
  ["current_token", "current token", "weight on the token itself"],
  ["entropy", "entropy", "1: spread over all tokens alike; 0: all on one token"],
  ["distance", "distance", "how far back it looks, as a share of what lies behind"],
  ["copying", "copying", "above 0: what it looks at becomes more likely; about 0 by chance"],
  ["max_logit", "largest logit", "the largest score before the softmax; when it runs away, training is unstable"],
];
const RANGES = { copying: [-1, 1] };

export function makeScores() {
  const name = make("span", {});
  const badges = make("span", { className: "badges" });
  const title = make("h2", {}, name, badges);
  const rows = SCORES.map(([name, label, meaning]) => makeRow(name, label, meaning));
  const head = make(
    "tr",
    {},
    ...["score", "value", "", "uniform head", "95 % interval"].map((text) =>
      make(text ? "th" : "td", text ? { scope: "col", textContent: text } : {}),
    ),
  );
  const body = make(
    "table",
    { className: "scores" },
    make("thead", {}, head),
    make("tbody", {}, ...rows.map((row) => row.element)),
  );
  const knockout = make("p", {});
  const caution = make("p", {
    className: "note",
    textContent: "Attention is not explanation: only this says whether the head matters.",
  });
  const model = make("p", { className: "note" });
  const element = make(
    "section",
    { className: "about", "aria-label": "Scores of this head" },
    title,
    knockout,
    caution,
    body,
    model,
  );
  const differs = makeMemo();
  return {
    element,
    update(scene) {
      if (!differs(scene.view, scene.index, scene.layer, scene.head, scene.page)) return;
      const { report, layer, head: chosen } = scene;
      setText(name, `Layer ${layer} · head ${chosen}`);
      body.hidden = knockout.hidden = !report;
      caution.hidden = typeof report?.scores.knockout?.[layer]?.[chosen] !== "number";
      setText(badges, report?.badges?.[layer][chosen].join(" · ") ?? "");
      setText(knockout, knockoutWords(report, layer, chosen));
      setText(model, modelWords(report));
      if (report) for (const row of rows) updateRow(row, scene);
    },
  };
}

function makeRow(name, label, meaning) {
  const cells = ["value", "chart", "baseline", "interval"].map((className) => make("td", { className }));
  const canvas = make("canvas", { "aria-hidden": "true" });
  cells[1].append(canvas);
  return {
    name,
    canvas,
    cells,
    element: make("tr", {}, make("th", { scope: "row", textContent: label, title: meaning }), ...cells),
  };
}

function updateRow(
  { name, canvas, cells: [value, , baseline, interval], element },
  { view, index, layer, head, page },
) {
  const at = (part, frame) => frame.report?.[part]?.[name]?.[layer]?.[head] ?? null;
  const values = view.frames.map((frame) => at("scores", frame));
  const intervals = view.frames.map((frame) => (isInterval(at("interval", frame)) ? at("interval", frame) : null));
  const uniform = view.baseline[name] ?? null;
  element.hidden = view.frames[index].report.scores[name] === undefined;
  setText(value, plainText(values[index]));
  setText(baseline, uniform === null ? "" : plainText(uniform));
  setText(interval, (intervals[index] ?? []).map((bound) => plainText(bound)).join(" – "));
  const [low, high] = RANGES[name] ?? [0, Math.max(1, ...values.filter((number) => number !== null))];
  drawChart(canvas, { values, intervals, low, high, baseline: uniform }, index, page);
}

function isInterval(bounds) {
  return Boolean(bounds) && bounds.every((bound) => bound !== null);
}

function knockoutWords(report, layer, head) {
  const effect = report?.scores.knockout?.[layer]?.[head] ?? null;
  if (effect === null) return "What the model loses without this head was not measured.";
  const interval = report.interval?.knockout?.[layer]?.[head];
  const between = isInterval(interval) ? ` (${interval.map((bound) => plainText(bound, 3)).join(" – ")})` : "";
  const size = `${plainText(Math.abs(effect), 3)} nats${between}`;
  return `Knocked out: with its output held at its mean, the loss ${effect < 0 ? "falls" : "rises"} by ${size}.`;
}

function modelWords(report) {
  if (!report) return "No scores were recorded for this step.";
  const parts = [];
  if (report.copy_gap !== null)
    parts.push(`copying a repeated text gains it ${plainText(report.copy_gap)} nats a token`);
  if (report.in_context !== null)
    parts.push(`from early to late in a text its loss changes by ${plainText(report.in_context)} nats`);
  return parts.length ? `The whole model: ${parts.join("; ")}.` : "";
}
