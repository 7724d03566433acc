// A score as a small drawing: over the steps of the film, or, where there is one step, on its scale.
//
// Dashed: a head that attends to everything alike. Pale band or bar: the 95 % interval. Dot: the step shown.

const CHART_WIDTH = 112;
const CHART_HEIGHT = 22;
const MARGIN = 4;

// series is {values, intervals, low, high, baseline}, one value a step, null where there is none.
export function drawChart(canvas, series, index, page) {
  const scale = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: CHART_WIDTH * scale, height: CHART_HEIGHT * scale });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const share = (value) => Math.min(Math.max((value - series.low) / (series.high - series.low || 1), 0), 1);
  if (series.values.length > 1) drawOverSteps(context, series, share, index, page);
  else drawOnScale(context, series, share, page);
}

function line(context, points, colour, width, dashes = []) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dashes);
  context.beginPath();
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function dot(context, x, y, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, 3, 0, 2 * Math.PI);
  context.fill();
}

function drawOverSteps(context, { values, intervals, baseline }, share, index, page) {
  const x = (i) => MARGIN + (i * (CHART_WIDTH - 2 * MARGIN)) / (values.length - 1);
  const y = (value) => CHART_HEIGHT - MARGIN - share(value) * (CHART_HEIGHT - 2 * MARGIN);
  const known = values.map((value, i) => [value, i]).filter(([value]) => value !== null);
  if (baseline !== null)
    line(
      context,
      [
        [x(0), y(baseline)],
        [x(values.length - 1), y(baseline)],
      ],
      page.muted,
      1,
      [2, 3],
    );
  const banded = known.filter(([, i]) => intervals[i]);
  context.fillStyle = page.line;
  context.beginPath();
  for (const [, i] of banded) context.lineTo(x(i), y(intervals[i][0]));
  for (const [, i] of banded.reverse()) context.lineTo(x(i), y(intervals[i][1]));
  context.fill();
  line(
    context,
    known.map(([value, i]) => [x(i), y(value)]),
    page.accent,
    1.5,
  );
  if (values[index] !== null) dot(context, x(index), y(values[index]), page.accent);
}

function drawOnScale(context, { values, intervals, baseline }, share, page) {
  const x = (value) => MARGIN + share(value) * (CHART_WIDTH - 2 * MARGIN);
  const middle = CHART_HEIGHT / 2;
  line(
    context,
    [
      [MARGIN, middle],
      [CHART_WIDTH - MARGIN, middle],
    ],
    page.line,
    1,
  );
  if (baseline !== null)
    line(
      context,
      [
        [x(baseline), 3],
        [x(baseline), CHART_HEIGHT - 3],
      ],
      page.muted,
      1,
      [2, 3],
    );
  if (intervals[0])
    line(
      context,
      [
        [x(intervals[0][0]), middle],
        [x(intervals[0][1]), middle],
      ],
      page.accent,
      3,
    );
  if (values[0] !== null) dot(context, x(values[0]), middle, page.accent);
}
