// Numbers as they are written on the page.

function short(size, digits) {
  const text = size.toFixed(digits);
  if (Number(text) === 0) return "0";
  return text.startsWith("0.") ? text.slice(1) : text.replace(/\.0+$/, "");
}

// A weight: .93, 1, 0; a difference: +.12, −.3 with a sign that screen readers read; "" for the future.
export function weightText(value, signed = false, digits = 2) {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  const text = short(Math.abs(value), digits);
  if (!signed || text === "0") return text;
  return (value < 0 ? "−" : "+") + text;
}

// Any other number; "–" where there is none.
export function plainText(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
}

export function percentText(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(share > 0.0995 ? 0 : 1)} %`;
}

export function stepText(step) {
  return `step ${step.toLocaleString("en")}`;
}
