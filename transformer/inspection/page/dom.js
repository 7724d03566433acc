// Making elements. A string becomes text, never markup: nothing that comes with the data can run.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// Writes only what differs: an untouched attribute or text costs the browser no layout.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Tells whether anything differs from the last time it was asked.
export function makeMemo() {
  let last = null;
  return (...parts) => {
    const differs = last === null || parts.some((part, i) => !Object.is(part, last[i]));
    last = parts;
    return differs;
  };
}

// A row of buttons of which one is pressed: choices is [[value, label], …].
export function makeChoice(label, choices, onChoose) {
  const buttons = choices.map(([value, text]) =>
    make("button", { type: "button", className: "choice", textContent: text, onclick: () => onChoose(value) }),
  );
  const element = make("div", { className: "choices", role: "group", "aria-label": label }, ...buttons);
  const update = (chosen) =>
    choices.forEach(([value], i) => setAttribute(buttons[i], "aria-pressed", String(value === chosen)));
  return { element, update };
}

// Options of a select: choices is [[value, label], …]. An equal list is left alone, so an open menu stays open.
export function fillSelect(select, choices, chosen) {
  const signature = JSON.stringify(choices);
  if (select.signature !== signature) {
    select.signature = signature;
    select.replaceChildren(...choices.map(([value, text]) => make("option", { value, textContent: text })));
  }
  select.value = chosen;
}
