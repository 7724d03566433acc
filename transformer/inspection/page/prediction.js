// How likely the chosen token was after those before it, and what else could have stood there.

import { make, setText } from "./dom.js";
import { quoted } from "./names.js";
import { percentText } from "./numbers.js";

const ALTERNATIVES = 5;

export function makePrediction() {
  const words = make("p", {});
  const bars = Array.from({ length: ALTERNATIVES }, () => {
    const parts = [
      make("span", { className: "name" }),
      make("span", { className: "bar" }),
      make("span", { className: "share" }),
    ];
    return { element: make("li", {}, ...parts), parts };
  });
  const element = make("div", { className: "prediction" }, words, make("ol", {}, ...bars.map((bar) => bar.element)));
  return {
    element,
    update({ view, token }) {
      const prediction = token === null ? null : view.predictions?.[token];
      element.hidden = !prediction;
      if (!prediction) return;
      const written = view.prompt_length !== null && token >= view.prompt_length ? ", generated" : "";
      setText(words, `${quoted(view.tokens[token])}${written}: ${percentText(prediction.probability)} likely here`);
      bars.forEach(({ element: item, parts: [name, bar, share] }, i) => {
        const alternative = prediction.alternatives[i];
        item.hidden = !alternative;
        if (!alternative) return;
        setText(name, quoted(alternative[0]));
        bar.style.setProperty("--share", alternative[1]);
        setText(share, percentText(alternative[1]));
      });
    },
  };
}
