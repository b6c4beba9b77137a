// The error of each version against the budget, from the table of versions.

function read(table) {
  const rows = [...table.querySelectorAll("tr[data-version]")].reverse();
  const number = (text) => (text === "" ? null : Number(text));
  return {
    columns: ["version", "error", "budget"].map((name) => rows.map((row) => number(row.dataset[name]))),
    refreshed: rows.map((row) => row.dataset.refresh !== undefined),
  };
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const probe = document.createElement("span");
  document.body.append(probe);
  const resolved = (name) => {
    probe.style.color = style.getPropertyValue(name);
    return getComputedStyle(probe).color;
  };
  const found = Object.fromEntries(["accent", "bad", "muted", "line", "good"].map((name) => [name, resolved(`--${name}`)]));
  probe.remove();
  return found;
}

// Where the pointer is, or else at the newest version.
function figure(format) {
  return (u, value, series, at) => format(u.data[series][at ?? u.data[0].length - 1]);
}

function options(place, refreshed, of) {
  const short = (u, values) => values.map((value) => (value === null ? "" : Number(value.toPrecision(2)).toString()));
  const axis = { stroke: of.muted, grid: { stroke: of.line, width: 1 }, ticks: { stroke: of.line, width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width: Math.max(place.clientWidth, 200),
    height: 240,
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, (high || 1) * 1.08] } },
    axes: [
      { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100], values: (u, values) => values.map(String) },
      { ...axis, size: 64, values: short },
    ],
    series: [
      { label: "version", value: figure(String) },
      {
        label: "error", stroke: of.accent, width: 2, spanGaps: false,
        points: { show: true, size: 6, fill: of.accent, filter: (u, series, show) => (show ? refreshed.flatMap((is, i) => (is ? [i] : [])) : null) },
        value: figure((error) => (error === null ? "unknown" : error.toPrecision(3))),
      },
      { label: "budget", stroke: of.bad, width: 1.5, dash: [6, 4], points: { show: false }, value: figure((budget) => budget.toPrecision(3)) },
    ],
  };
}

let chart = null;

function draw() {
  const place = document.getElementById("chart");
  const table = document.querySelector("table[data-chart]");
  if (!place || !table || !globalThis.uPlot) return;
  const { columns, refreshed } = read(table);
  chart?.destroy();
  chart = new globalThis.uPlot(options(place, refreshed, colours()), columns, place);
}

draw();
document.addEventListener("lethe:changed", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => chart?.setSize({ width: Math.max(document.getElementById("chart").clientWidth, 200), height: 240 })).observe(document.getElementById("main"));
