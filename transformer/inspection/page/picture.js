// A large map on a canvas: cells, names of tokens beside them, the locked token and the cell under the pointer.

import { coarsen } from "./maps.js";
import { pixelsOf } from "./colours.js";
import { shortText } from "./names.js";

const LABEL_SIZE = 11;
const LABEL_LENGTH = 14;
const LABEL_SHARE = 0.2;
const LARGEST_CELL = 72;

// Where everything stands, in device pixels: {plane, scale, room, cell, side, width, height, stride}.
export function layOut(plane, tokens, cssWidth, scale) {
  const width = Math.floor(cssWidth * scale);
  const context = document.createElement("canvas").getContext("2d");
  context.font = labelFont(scale);
  const widest = Math.max(
    ...tokens.filter((_, i) => i % plane.pool === 0).map((token) => context.measureText(labelOf(token)).width),
  );
  const room = Math.ceil(Math.min(widest + 8 * scale, LABEL_SHARE * width));
  const fitted = coarsen(plane, Math.max(Math.ceil(plane.side / (width - room)), 1));
  const cell = Math.min(Math.floor((width - room) / fitted.side), LARGEST_CELL * scale);
  const side = cell * fitted.side;
  const stride = Math.ceil(((LABEL_SIZE + 2) * scale) / cell);
  return { plane: fitted, scale, room, cell, side, width: room + side, height: side + room, stride };
}

function labelFont(scale) {
  return `${LABEL_SIZE * scale}px system-ui, sans-serif`;
}

function labelOf(token) {
  return shortText(token.text, LABEL_LENGTH);
}

// The longest start of a token that fits into a width.
function fittingLabel(context, token, width) {
  let length = LABEL_LENGTH;
  while (length > 2 && context.measureText(shortText(token.text, length)).width > width) length--;
  return shortText(token.text, length);
}

// Everything that stays while a token is locked or the pointer moves.
export function drawCells(place, tokens, { signed, tables, page }) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: place.width, height: place.height });
  const context = canvas.getContext("2d");
  context.fillStyle = page.paper;
  context.fillRect(0, 0, place.width, place.height);
  const cells = document.createElement("canvas");
  cells.width = cells.height = place.plane.side;
  const { image, notFinite } = pixelsOf(place.plane, signed, tables, page);
  cells.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, place.room, 0, place.side, place.side);
  if (notFinite) hatch(context, place, page);
  context.strokeStyle = page.line;
  context.lineWidth = place.scale;
  context.beginPath();
  context.moveTo(place.room, 0);
  context.lineTo(place.room, place.side);
  context.lineTo(place.room + place.side, place.side);
  context.stroke();
  drawLabels(context, place, tokens, page);
  return canvas;
}

function hatch(context, { plane, room, cell, scale }, page) {
  context.strokeStyle = page["warning-paper"];
  context.lineWidth = 2 * scale;
  for (let i = 0, k = 0; i < plane.side; i++)
    for (let j = 0; j <= i; j++, k++) {
      if (!Number.isNaN(plane.values[k])) continue;
      context.save();
      context.beginPath();
      context.rect(room + j * cell, i * cell, cell, cell);
      context.clip();
      context.beginPath();
      for (let x = -cell; x < cell; x += 6 * scale) {
        context.moveTo(room + j * cell + x, (i + 1) * cell);
        context.lineTo(room + j * cell + x + cell, i * cell);
      }
      context.stroke();
      context.restore();
    }
}

function drawLabels(context, place, tokens, page) {
  const { plane, room, cell, side, scale, stride } = place;
  context.fillStyle = page.muted;
  context.font = labelFont(scale);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const first = Math.max(Math.ceil((LABEL_SIZE * scale) / 2 / cell - 0.5), 0); // the edge would cut an earlier one
  for (let i = first; i < plane.side; i += stride) {
    const label = fittingLabel(context, tokens[i * plane.pool], room - 5 * scale);
    context.fillText(label, room - 5 * scale, (i + 0.5) * cell);
    context.save();
    context.translate(room + (i + 0.5) * cell, side + 5 * scale);
    context.rotate(-Math.PI / 2);
    context.fillText(label, 0, 0);
    context.restore();
  }
}

// The cells with the locked token's row or column and the cell that is looked at outlined: `marks` is
// {line: {token, direction} | null, cell: {query, key} | null}.
export function drawMarks(canvas, base, place, marks, page) {
  if (canvas.width !== place.width || canvas.height !== place.height)
    Object.assign(canvas, { width: place.width, height: place.height });
  const context = canvas.getContext("2d");
  context.drawImage(base, 0, 0);
  const { plane, room, cell, side, scale } = place;
  const block = (token) => Math.floor(token / plane.pool) * cell;
  const outline = (x, y, width, height, colour, line) => {
    context.strokeStyle = colour;
    context.lineWidth = line * scale;
    context.strokeRect(room + x, y, width, height);
  };
  if (marks.line) {
    const at = block(marks.line.token);
    if (marks.line.direction === "to") outline(0, at, at + cell, cell, page.accent, 1.5);
    else outline(at, at, cell, side - at, page.accent, 1.5);
  }
  if (marks.cell) {
    const [row, column] = [block(marks.cell.query), block(marks.cell.key)];
    outline(0, row, side, cell, page.muted, 0.5);
    outline(column, 0, cell, side, page.muted, 0.5);
    outline(column, row, cell, cell, page.ink, 2);
  }
}

// The query and key tokens at a place on the canvas (CSS pixels); null beside the cells and in the future.
export function cellAt(place, x, y) {
  const column = Math.floor((x * place.scale - place.room) / place.cell);
  const row = Math.floor((y * place.scale) / place.cell);
  if (column < 0 || row < 0 || row >= place.plane.side || column > row) return null;
  return { query: row * place.plane.pool, key: column * place.plane.pool };
}
