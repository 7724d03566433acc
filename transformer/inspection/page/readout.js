// One line in words: what is looked at, and how much it is.

import { weightAt } from "./maps.js";
import { quoted } from "./names.js";
import { weightText } from "./numbers.js";

export function readout(scene) {
  if (scene.cell) return cellWords(scene, scene.cell);
  if (scene.token !== null) return tokenWords(scene);
  return "Choose a token to see where its attention goes.";
}

function cellWords({ view, plane, now, then, pooled, signed }, { query, key }) {
  const names = [query, key].map((token) => blockName(view, token, plane.pool));
  const value = (of) => weightText(weightAt(of, query, key), false, 3);
  const change = weightText(weightAt(plane, query, key), true, 3);
  const weight = signed ? `${value(now)} now, ${value(then)} there: ${change}` : value(now);
  return `${names[0]} → ${names[1]}: ${pooled ? "at most " : ""}${weight}`;
}

function blockName(view, token, pool) {
  const last = Math.min(token - (token % pool) + pool, view.tokens.length) - 1;
  return pool > 1 ? `tokens ${token - (token % pool)}–${last}` : quoted(view.tokens[token]);
}

// The tokens a token has most to do with: [[token, weight], …], strongest first.
function strongest(weights, count) {
  return weights
    .map((weight, token) => [token, weight])
    .filter(([, weight]) => weight !== null)
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]))
    .slice(0, count);
}

function tokenWords({ view, token, weights, direction, signed, pooled, plane }) {
  const name = quoted(view.tokens[token]);
  const notFinite = weights.filter((weight) => Number.isNaN(weight)).length;
  if (notFinite) return `${name}: ${notFinite} of its weights are not a number (NaN).`;
  const top = strongest(weights, 3).filter(([, weight], i) => i === 0 || Math.abs(weight) >= 0.05);
  const list = top.map(([other, weight]) => `${quoted(view.tokens[other])} ${weightText(weight, signed)}`).join(", ");
  const verb = direction === "to" ? "attends most to" : "is attended to most by";
  const words = signed
    ? `${name} ${direction === "to" ? "attends to" : "is attended to by"}, changed most: ${list}`
    : `${name} ${verb} ${list}`;
  return (
    words + (pooled ? `. A number is the greatest weight in a block of ${plane.pool} × ${plane.pool} tokens.` : "")
  );
}
