// The audit page: a form, and a table of findings. Every text is shown as text.

import { audit } from "./audit.js";
import { Unreadable } from "./bytes.js";
import { FAILED, HOLDS, NOT_CHECKED, NOT_PROVED, OK, REFUSED } from "./checks.js";

const form = document.getElementById("audit");
const result = document.getElementById("result");
const field = (name) => document.getElementById(`a-${name}`);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function notice(tone, title, detail) {
  return element("div", { class: `notice ${tone}` }, element("p", { class: "verdict" }, title), element("p", {}, detail));
}

function table(findings) {
  const tone = (outcome) => ({ [FAILED]: "bad", [NOT_PROVED]: "warn", [NOT_CHECKED]: "warn" })[outcome] ?? "good";
  const head = element("tr", {}, ...["Check", "Result", "What was found"].map((name) => element("th", { scope: "col" }, name)));
  const rows = findings.map(({ check, result: outcome, detail }) =>
    element("tr", { "data-check": check, "data-result": outcome },
      element("th", { scope: "row" }, check),
      element("td", {}, element("span", { class: `badge ${tone(outcome)}` }, outcome)),
      element("td", {}, detail)));
  return element("div", { class: "card table" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function aboutErasure({ evidence, header, findings }) {
  const opened = findings.some((one) => one.check === "subject" && one.result === OK);
  const pairs = [["Erasure", evidence.erasureId], ["State", evidence.receipt?.status ?? "no combined receipt"]];
  if (opened) pairs.push(["Person", evidence.openings[0].subjectId]);
  pairs.push(["Models", [...evidence.models.keys()].join(", ") || "none"], ["Exported", header.exportedAt || "not said"]);
  const list = element("dl", { class: "facts" });
  for (const [name, value] of pairs) list.append(element("dt", {}, name), element("dd", { class: "digest" }, value));
  return element("div", { class: "card" }, list);
}

function facts({ history, header }) {
  const tip = history.tip?.event;
  const pairs = [["Model", header.modelId], ["Exported", header.exportedAt || "not said"]];
  if (tip) pairs.push(["Newest version", `${tip.version}:${tip.digest}`]);
  const list = element("dl", { class: "facts" });
  for (const [name, value] of pairs) list.append(element("dt", {}, name), element("dd", { class: "digest" }, value));
  return element("div", { class: "card" }, list, element("p", { class: "hint" }, "Keep the newest version where the operator cannot reach it: the next audit can then begin from it."));
}

function headline({ verdict, findings }) {
  const count = (result) => findings.filter((one) => one.result === result).length;
  const rest = [NOT_PROVED, NOT_CHECKED].filter(count).map((result) => `, ${count(result)} ${result.toLowerCase()}`).join("");
  const tone = { [HOLDS]: "good", [NOT_PROVED]: "warn", [REFUSED]: "bad" }[verdict];
  const title = { [HOLDS]: "No check failed", [NOT_PROVED]: "Not proved", [REFUSED]: "Refused" }[verdict];
  return notice(tone, title, `${findings.length} checks, ${count(FAILED)} failed${rest}.`);
}

async function check() {
  const file = field("file").files[0];
  result.setAttribute("aria-busy", "true");
  result.replaceChildren(element("p", {}, "Reading the file…"));
  const begin = performance.now();
  let said = begin;
  const progress = async (text) => {
    if (performance.now() - said < 100) return;
    result.replaceChildren(element("p", {}, text));
    await new Promise((resolve) => setTimeout(resolve));
    said = performance.now();
  };
  const typed = (name) => field(name).value.trim();
  const held = field("table").files[0];
  const retrained = held ? { file: held, id: typed("id"), weight: typed("weight"), ridge: typed("ridge") } : null;
  try {
    const outcome = await audit(file, { trust: field("trust").value, seen: field("seen").value, table: retrained, progress });
    const seconds = (performance.now() - begin) / 1000;
    result.replaceChildren(headline(outcome), table(outcome.findings), outcome.evidence ? aboutErasure(outcome) : facts(outcome));
    result.dataset.seconds = seconds.toFixed(3);
  } catch (error) {
    const title = error instanceof Unreadable ? "Not read" : "Not checked";
    result.replaceChildren(notice("bad", title, error instanceof Unreadable ? `${file.name}: ${error.message}` : error.message));
  }
  result.removeAttribute("aria-busy");
  result.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  check();
});
