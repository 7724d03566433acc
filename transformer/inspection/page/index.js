// What TensorBoard calls to fill its tab.

import { openTab } from "./tab.js";

export async function render() {
  document.documentElement.lang = "en";
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("viewer.css", import.meta.url);
  const loaded = new Promise((resolve) => style.addEventListener("load", resolve, { once: true }));
  document.head.append(style);
  await loaded;
  const root = document.createElement("div");
  document.body.append(root);
  await openTab(root);
}
