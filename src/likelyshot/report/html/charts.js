// Draws the charts of a page. Texts become text nodes, never markup; what plotly shows goes through plain().

const MANY_SECTIONS = 1; // if more are alike, the reader chooses one from a list: their headings are the same
const BUTTONS = [["toImage", "resetScale2d"]]; // these only: plotly has others that send charts away
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const look = JSON.parse(document.getElementById("look").textContent);
const drawings = []; // functions that draw anew: at first, in another colour scheme, at another width

function make(tag, text = "", attributes = {}, ...children) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Lets a line break after an underscore, as names of folders have, and not within a word.
function breakable(text) {
  return text.split(/(?<=_)/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
}

// Plotly reads <b>, <a href> and entities in its texts: escaped, they are shown as they are.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function short(text, most) {
  const letters = Array.from(String(text));
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : String(text);
}

function digits(value) {
  return value === null ? "none" : String(Number(value.toPrecision(3)));
}

function colour(index, opacity = 1) {
  const palette = look[scheme.matches && !onPaper() ? "dark" : "light"];
  const hex = palette[index % palette.length];
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${opacity})`;
}

function onPaper() {
  return document.documentElement.classList.contains("on-paper");
}

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function plusMinus(value, half) {
  return half > 0 ? `${value.toFixed(2)} ± ${half.toFixed(2)}` : digits(value);
}

// The dash or symbol that goes with a colour; when the palette begins again, another.
function beside(index, kind) {
  return look[kind][(index + Math.floor(index / look.light.length)) % look[kind].length];
}

function symbol(mark) {
  return beside(mark.colour, "symbols");
}

// A hollow mark covers the line of its interval, so that it cannot be taken for a filled one.
function pointMarker(mark, size) {
  const line = { width: 1.5, color: colour(mark.colour) };
  return { color: mark.hollow ? ink("--ground") : line.color, size, symbol: symbol(mark), line };
}

const traces = {
  line: (mark) => (mark.colour === null ? {
    type: "scatter", mode: "lines", x: mark.x, y: mark.y, hoverinfo: "skip", line: { color: ink("--quiet"), width: 1 },
  } : {
    type: "scatter", mode: mark.half?.length ? "lines+markers" : "lines", x: mark.x, y: mark.y,
    line: { color: colour(mark.colour), width: 2.5, dash: beside(mark.colour, "dashes") },
    marker: { size: 7, symbol: symbol(mark) },
  }),
  band: (mark) => ({
    type: "scatter", mode: "lines", x: [...mark.x, ...mark.x.toReversed()], line: { width: 0 },
    y: [...mark.y.map((y, i) => y + mark.half[i]), ...mark.y.map((y, i) => y - mark.half[i]).reverse()],
    fill: "toself", fillcolor: colour(mark.colour, 0.13), hoverinfo: "skip",
  }),
  steps: (mark) => ({
    type: "scatter", mode: "lines", x: mark.edges, y: [...mark.heights, mark.heights.at(-1)],
    line: { shape: "hv", width: 1, color: colour(mark.colour, 0.7) },
    fill: "tozeroy", fillcolor: colour(mark.colour, 0.2),
  }),
  bars: (mark) => ({
    type: "bar", orientation: "h", x: mark.values, y: mark.labels.map((_, i) => i),
    text: mark.values.map((value) => value.toFixed(mark.decimals)), textposition: "outside", cliponaxis: false, textangle: 0,
    hovertext: mark.labels.map((label, i) => `${plain(label)}: ${digits(mark.values[i])}`), hoverinfo: "text+name",
    marker: { color: Array.isArray(mark.colour) ? mark.colour.map((index) => colour(index)) : colour(mark.colour) },
  }),
  intervals: (mark) => ({
    type: "scatter", mode: "markers", x: mark.values, y: mark.places,
    error_x: { type: "data", array: mark.half, color: colour(mark.colour), thickness: 2, width: 0 },
    marker: pointMarker(mark, 10),
    hovertext: mark.labels.map((label, i) =>
      mark.values[i] === null ? "" : `${plain(label)}: ${plusMinus(mark.values[i], mark.half[i])}`), hoverinfo: "text",
  }),
  points: (mark, narrow) => ({
    type: "scatter", mode: "markers+text", x: mark.x, y: mark.y,
    error_y: { type: "data", array: mark.half, color: colour(mark.colour), thickness: 1.5, width: 0 },
    marker: pointMarker(mark, 11),
    text: mark.labels.map((label, i) => (mark.written[i] && !(narrow && (mark.below || mark.right)) ? plain(short(label, 40)) : "")),
    textposition: `${mark.below ? "bottom" : "top"} ${mark.right ? "right" : "left"}`,
    hovertext: mark.labels.map((label, i) =>
      `${plain(label)}: ${plusMinus(mark.y[i], mark.half[i])} at ${digits(mark.x[i])}`), hoverinfo: "text",
  }),
  heat: (mark) => ({
    type: "heatmap", z: mark.values, x: mark.columns.map((_, i) => i), y: mark.rows.map((_, i) => i),
    colorscale: "Cividis", ...(mark.span && { zmin: mark.span[0], zmax: mark.span[1] }), hoverinfo: "text", hoverongaps: true,
    hovertext: mark.values.map((row, i) =>
      row.map((value, j) => `${plain(mark.rows[i])}<br>${plain(mark.columns[j])}: ${digits(value)}`)),
    text: mark.values.map((row) => row.map(digits)), texttemplate: mark.write ? "%{text}" : "",
    showscale: !mark.write,
    colorbar: { orientation: "h", y: 1, yanchor: "bottom", thickness: 10, ypad: 4, title: { text: plain(mark.unit), side: "top" } },
  }),
};

// Labels at whole positions, at most as many as fit, so that a class called "2020-01-01" stays a name.
function ticks(labels, room, most) {
  const step = Math.max(1, Math.ceil(labels.length / room));
  const shown = labels.map((_, i) => i).filter((i) => i % step === 0);
  return { tickvals: shown, ticktext: shown.map((i) => plain(short(labels[i], most))), showgrid: false, zeroline: false };
}

// Where the values of marks that share labels stand: at their label, or beside the others that are there.
function sideBySide(marks) {
  return marks.map((mark, number) => mark.values.map((value, at) => {
    const here = marks.map((other) => other.values[at] !== null);
    const before = here.slice(0, number).filter(Boolean).length;
    return value === null ? at : at + 0.22 * (before - (here.filter(Boolean).length - 1) / 2);
  }));
}

// A logarithmic axis with 1, 2 and 5 of every power of ten, or the powers alone, and room for labels to the left.
function logAxis(values, narrow) {
  const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
  const span = Math.max(high - low, 0.5);
  const steps = span > 2.5 ? [1] : [1, 2, 5];
  const powers = Array.from({ length: Math.ceil(span) + 4 }, (_, i) => Math.floor(low) - 1 + i);
  const tickvals = powers.flatMap((power) => steps.map((step) => Number(`${step}e${power}`)));
  return { type: "log", range: [low - (narrow ? 0.7 : 0.3) * span, high + 0.1 * span], tickvals, ticktext: tickvals.map(String) };
}

function drawPanel(element, panel) {
  if (element.closest("[hidden], details:not([open])")) return; // drawn when it is shown
  const first = panel.marks[0] ?? { kind: "nothing" };
  const named = panel.marks.filter((mark) => mark.name);
  const width = element.clientWidth;
  const narrow = width < 480;
  const room = narrow ? 18 : width < 800 ? 32 : 56; // letters of a label
  const axis = (title) => ({
    title: { text: plain(title), standoff: 8 }, automargin: true, gridcolor: ink("--grid"), zerolinecolor: ink("--grid"),
    hoverformat: ".4~g", fixedrange: narrow, // a finger that slides over a chart scrolls the page
  });
  const layout = {
    height: 320, xaxis: axis(panel.x), yaxis: axis(panel.y), margin: { l: 8, r: 16, t: 8, b: 8 },
    paper_bgcolor: "rgba(0, 0, 0, 0)", plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: { family: getComputedStyle(element).fontFamily, size: narrow ? 11 : 13, color: ink("--text") },
    hoverlabel: { namelength: -1 }, hovermode: "closest", barmode: "group", bargap: 0.25,
    showlegend: named.length > 1, legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", bgcolor: "rgba(0, 0, 0, 0)" },
    modebar: { bgcolor: "rgba(0, 0, 0, 0)" },
  };
  if (first.kind === "bars") {
    const series = panel.marks.filter((mark) => mark.kind === "bars");
    layout.height = 90 + first.labels.length * (14 + 18 * series.length);
    Object.assign(layout.yaxis, ticks(first.labels, Infinity, room), { autorange: "reversed" });
    Object.assign(layout.xaxis, { range: [0, 1.18 * Math.max(1e-9, ...series.flatMap((mark) => mark.values))] });
    layout.legend.traceorder = "normal";
  } else if (first.kind === "heat") {
    const row = Math.max(4, Math.min(first.write ? 44 : 16, 800 / first.rows.length));
    layout.height = 130 + first.rows.length * row;
    Object.assign(layout.yaxis, ticks(first.rows, (first.rows.length * row) / 13, narrow ? 16 : 28), { autorange: "reversed" });
    Object.assign(layout.xaxis, ticks(first.columns, width / 60, 12), { tickangle: 0 });
  } else if (first.kind === "intervals") {
    const rows = first.labels.length;
    layout.height = 100 + 24 * rows;
    Object.assign(layout.yaxis, ticks(first.labels, Infinity, room), { range: [rows - 0.4, -0.6] });
  } else if (panel.marks.some((mark) => mark.kind === "steps")) {
    layout.yaxis.rangemode = "tozero";
  }
  if (panel.marks.some((mark) => mark.kind === "points")) layout.height = 400; // room for labels
  if (panel.log_x) Object.assign(layout.xaxis, logAxis(panel.marks.flatMap((mark) => mark.x), narrow));
  const series = panel.marks.filter((mark) => mark.kind === "intervals");
  const places = sideBySide(series);
  const marks = panel.marks.flatMap((mark) => {
    if (mark.kind === "intervals") return [{ ...mark, places: places[series.indexOf(mark)] }];
    return mark.kind === "line" && mark.half?.length ? [{ ...mark, kind: "band", name: "" }, mark] : [mark];
  });
  const drawn = marks.map((mark) => ({
    ...traces[mark.kind](mark, narrow), name: plain(short(mark.name || "", narrow ? 40 : 60)), showlegend: Boolean(mark.name),
  }));
  Plotly.react(element, drawn, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons: BUTTONS });
}

// One of many sections at a time: a list to choose from, and addresses that choose.
function chooser(label, sections) {
  const names = sections.map((section, i) => make("option", section.querySelector("h2").textContent, { value: i }));
  const list = make("select", "", { id: "choice" }, ...names);
  function choose(chosen) {
    sections.forEach((section, i) => { section.hidden = i !== chosen; });
    list.value = chosen;
    drawAll();
  }
  function follow() {
    const chosen = sections.findIndex((section) => `#${section.id}` === window.location.hash);
    if (chosen < 0) return;
    choose(chosen);
    sections[chosen].scrollIntoView();
  }
  list.addEventListener("change", () => choose(Number(list.value)));
  window.addEventListener("hashchange", follow);
  choose(0);
  follow();
  return make("div", "", { class: "row choice" }, make("label", label, { for: list.id }), list);
}

function prepare() {
  for (const plot of document.querySelectorAll(".plot")) {
    const panel = JSON.parse(plot.dataset.panel);
    drawings.push(() => drawPanel(plot, panel));
  }
  document.querySelectorAll(".chooser").forEach(histograms);
  document.querySelectorAll(".map").forEach(imageMap);
  document.querySelectorAll("section > details").forEach((fold) => fold.addEventListener("toggle", drawAll));
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", () => { document.querySelector(`${link.hash} > details`).open = true; });
  }
  const alike = [...document.querySelectorAll("section[data-choice]:not([data-choice=''])")];
  if (alike.length > MANY_SECTIONS) alike[0].before(chooser(alike[0].dataset.choice, alike));
}

async function loadPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(make("script", await new Response(unpacked).text()));
}

function drawAll() {
  if (!window.Plotly) return; // not yet there
  for (const draw of drawings) draw();
}

async function start() {
  prepare();
  try {
    await loadPlotly();
  } catch (error) {
    document.querySelector("main").prepend(make("p", `This browser cannot draw the charts (${error}): use a newer one.`));
    return;
  }
  drawAll();
  scheme.addEventListener("change", drawAll);
  for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      document.documentElement.classList.toggle("on-paper", printing); // paper is white
      drawAll();
    });
  }
  let waiting;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (window.innerWidth !== width) drawAll(); // on a phone the height changes while scrolling
      width = window.innerWidth;
    }, 150);
  });
  document.documentElement.dataset.drawn = "true";
}

start();
