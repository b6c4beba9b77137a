// Keeps a page up to date: its parts marked data-live-part are fetched again when the server says
// that something has changed, and relative times are counted on.

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const words = new Intl.RelativeTimeFormat("en", { numeric: "always" });

export function relative(at, now = Date.now()) {
  const seconds = (Date.parse(at) - now) / 1000;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS.at(-1);
  return words.format(Math.trunc(seconds / size), unit);
}

function tick() {
  for (const part of document.querySelectorAll("[data-since]")) {
    const text = relative(part.dataset.since);
    if (part.textContent !== text) part.textContent = text;
  }
}

/** Fetch this page again as a document: no script in it runs, and no text becomes HTML here. */
function fetched() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.onload = () => (request.status === 200 && request.response ? resolve(request.response) : reject());
    request.onerror = reject;
    request.send();
  });
}

function shape(part) {
  const copy = part.cloneNode(true);
  for (const time of copy.querySelectorAll("[data-since]")) time.remove();
  return copy.textContent;
}

async function refresh() {
  const page = await fetched();
  let changed = 0;
  for (const part of document.querySelectorAll("[data-live-part]")) {
    const newer = page.getElementById(part.id);
    if (!newer || shape(newer) === shape(part)) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const opened = document.adoptNode(newer);
    part.replaceWith(opened);
    if (focused) [...opened.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
    if (part.id !== "progress") changed += 1;
  }
  if (changed) {
    tick();
    document.getElementById("announce").textContent = `This page has changed: ${new Date().toISOString().slice(11, 19)} UTC`;
    document.dispatchEvent(new CustomEvent("lethe:changed"));
  }
}

function follow(address) {
  let busy = false;
  let again = false;
  const changed = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      await refresh();
    } catch {
      // the server is away: EventSource tries again
    }
    busy = false;
    if (again) {
      again = false;
      changed();
    }
  };
  const source = new EventSource(address);
  source.addEventListener("open", changed); // something may have changed since the page was made
  source.addEventListener("change", changed);
  addEventListener("pagehide", () => source.close());
}

tick();
setInterval(tick, 10_000);
if (document.body.dataset.live) follow(document.body.dataset.live);
