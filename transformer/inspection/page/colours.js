// Colours of weights and of differences, in steps of equal lightness, for light and dark pages.
//
// The light scale is the one of the pictures (canvas.py): the same colour means the same weight everywhere. The dark
// one runs the other way, so that no attention is always the colour of the page. A table has one entry a step:
// css (background), ink (black or white, whichever reads better on it: at least 4.58 to 1) and packed (a canvas pixel).

const LIGHT_WEIGHTS = [
  [255, 251, 235],
  [186, 222, 190],
  [58, 158, 176],
  [44, 88, 160],
  [30, 20, 70],
];
const DARK_WEIGHTS = [
  [25, 27, 36],
  [44, 72, 140],
  [52, 140, 170],
  [170, 214, 184],
  [255, 251, 235],
];
// From no difference to less and to more: blue and amber, which every kind of colour blindness keeps apart.
const LIGHT_LESS = [
  [247, 247, 246],
  [120, 164, 214],
  [24, 62, 130],
];
const LIGHT_MORE = [
  [247, 247, 246],
  [226, 152, 84],
  [122, 52, 4],
];
const DARK_LESS = [
  [25, 27, 36],
  [58, 112, 186],
  [186, 218, 255],
];
const DARK_MORE = [
  [25, 27, 36],
  [180, 98, 28],
  [255, 216, 170],
];
const STEPS = 255;

// Oklab: linear sRGB -> cones -> lightness, green-red, blue-yellow.
const TO_CONES = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
];
const TO_LAB = [
  [0.2104542553, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
];
const FROM_LAB = [
  [1, 0.3963377774, 0.2158037573],
  [1, -0.1055613458, -0.0638541728],
  [1, -0.0894841775, -1.291485548],
];
const FROM_CONES = [
  [4.0767416621, -3.3077115913, 0.2309699292],
  [-1.2684380046, 2.6097574011, -0.3413193965],
  [-0.0041960863, -0.7034186147, 1.707614701],
];

function times(matrix, vector) {
  return matrix.map((row) => row[0] * vector[0] + row[1] * vector[1] + row[2] * vector[2]);
}

function linearOf(rgb) {
  return rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
}

function rgbOfLab(lab) {
  const linear = times(
    FROM_CONES,
    times(FROM_LAB, lab).map((c) => c ** 3),
  );
  return linear
    .map((c) => Math.min(Math.max(c, 0), 1))
    .map((c) => Math.round(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055)));
}

// `steps` + 1 colours through the anchors, their lightness even from end to end.
function ramp(anchors, steps) {
  const labs = anchors.map((rgb) => times(TO_LAB, times(TO_CONES, linearOf(rgb)).map(Math.cbrt)));
  const [first, last] = [labs[0][0], labs[labs.length - 1][0]];
  const rising = Math.sign(last - first);
  return Array.from({ length: steps + 1 }, (_, step) => {
    const lightness = first + ((last - first) * step) / steps;
    let k = 1;
    while (k < labs.length - 1 && rising * (labs[k][0] - lightness) < 0) k++;
    const [from, to] = [labs[k - 1], labs[k]];
    const share = (lightness - from[0]) / (to[0] - from[0]);
    return rgbOfLab([lightness, from[1] + share * (to[1] - from[1]), from[2] + share * (to[2] - from[2])]);
  });
}

function table(colours) {
  const luminance = colours.map((rgb) => linearOf(rgb)).map(([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b);
  return {
    css: colours.map((rgb) => `rgb(${rgb.join(" ")})`),
    ink: luminance.map((y) => ((y + 0.05) / 0.05 > 1.05 / (y + 0.05) ? "#000" : "#fff")),
    packed: Uint32Array.from(colours, pixelOf),
  };
}

function pixelOf([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function signedTable(less, more) {
  return table([...ramp(less, STEPS).reverse(), ...ramp(more, STEPS).slice(1)]);
}

const tables = new Map();

// The tables of a theme, "light" or "dark": {weights, differences}.
export function colourTables(theme) {
  if (!tables.has(theme)) {
    const dark = theme === "dark";
    tables.set(theme, {
      weights: table(ramp(dark ? DARK_WEIGHTS : LIGHT_WEIGHTS, STEPS)),
      differences: dark ? signedTable(DARK_LESS, DARK_MORE) : signedTable(LIGHT_LESS, LIGHT_MORE),
    });
  }
  return tables.get(theme);
}

// Where a weight in [0, 1], or a difference in [-1, 1], stands in its table.
export function colourIndex(value, signed) {
  const index = Math.round(STEPS * (signed ? value + 1 : value));
  return Math.min(Math.max(index, 0), signed ? 2 * STEPS : STEPS);
}

// A plane as an image of one pixel a cell. The future stays clear; what is not a number has the colour of a warning.
export function pixelsOf(plane, signed, tables, page) {
  const image = new ImageData(plane.side, plane.side);
  const pixels = new Uint32Array(image.data.buffer);
  const { packed } = signed ? tables.differences : tables.weights;
  const warning = pixelOf(page.warning.match(/\w\w/g).map((part) => parseInt(part, 16)));
  let notFinite = false;
  for (let i = 0, k = 0; i < plane.side; i++)
    for (let j = 0; j <= i; j++, k++) {
      const value = plane.values[k];
      if (value === value) pixels[i * plane.side + j] = packed[colourIndex(value, signed)];
      else {
        pixels[i * plane.side + j] = warning;
        notFinite = true;
      }
    }
  return { image, notFinite };
}

// The colours of words and lines on a canvas, as the style sheet has them.
export function pageColours(root) {
  const style = getComputedStyle(root);
  const names = ["paper", "ink", "muted", "line", "accent", "warning", "warning-paper"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
