"use strict";

// The paper's Figures 2 and 3 for any feature and up to five classes: histogram by eq. (1), exponential fit by eq. (2).

const MOST = 5;
const MANY = 12; // classes from which on a filter helps

function decode(text, type) {
  return new type(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer); // little-endian, as browsers are
}

function histograms(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const { classes, features, features_of: total, start } = data;
  const { bins, width, counts, dtype, images } = data.histograms;
  const table = decode(counts, dtype === "uint8" ? Uint8Array : Uint16Array);
  const rates = decode(data.rates, Float32Array);
  const chosen = Array.from({ length: MOST }, (_, i) => start.classes[i] ?? null); // a class keeps its colour
  let feature = start.feature; // the position in features

  const number = make("input", "", { type: "number", id: `${figure.id}-feature`, min: features[0], max: features.at(-1), step: 1 });
  const random = make("button", "Random feature", { type: "button" });
  const filter = make("input", "", { type: "search", id: `${figure.id}-filter`, placeholder: "part of a name" });
  const said = make("p", "", { role: "status" });
  const boxes = classes.map((_, i) => make("input", "", { type: "checkbox", id: `${figure.id}-class-${i}`, value: i }));
  const lines = classes.map((name, i) => make("div", "", {}, boxes[i], make("label", "", { for: boxes[i].id }, ...breakable(name))));
  const plot = make("div", "", { class: "plot", role: "img" });

  function panel() {
    const edges = Array.from({ length: bins + 1 }, (_, i) => i * width[feature]);
    const curve = Array.from({ length: 121 }, (_, i) => (i / 120) * edges.at(-1));
    const marks = chosen.flatMap((label, slot) => {
      if (label === null) return [];
      const from = (label * features.length + feature) * bins;
      const heights = Array.from(table.subarray(from, from + bins), (count) => count / (images[label] * width[feature] || 1));
      const rate = rates[label * features.length + feature];
      const name = rate > 0 ? `${classes[label]}: λ = ${digits(rate)}` : `${classes[label]}: all zero`;
      return [
        { kind: "steps", name: "", edges, heights, colour: slot },
        { kind: "line", name, x: curve, y: curve.map((z) => rate * Math.exp(-rate * z)), colour: slot },
      ];
    });
    return { title: "", x: `value of feature ${features[feature]}`, y: "density", marks };
  }

  function update() {
    const names = chosen.filter((label) => label !== null);
    number.value = features[feature];
    boxes.forEach((box, i) => {
      box.checked = names.includes(i);
      box.disabled = names.length === MOST && !box.checked;
    });
    const drawn = panel();
    const lines = drawn.marks.filter((mark) => mark.kind === "line").map((mark) => mark.name);
    said.textContent = lines.length
      ? `Feature ${features[feature]}, ${lines.length} of at most ${MOST} classes. ${lines.join("; ")}.`
      : "No class is chosen: choose one to see its histogram.";
    plot.setAttribute("aria-label", `Histograms and exponential fits. ${said.textContent}`);
    drawPanel(plot, drawn);
  }

  number.addEventListener("change", () => {
    const wanted = Number(number.value);
    const up = features.findIndex((index) => index >= wanted); // the next one there is, in the direction of the change
    if (wanted > features[feature]) feature = up < 0 ? features.length - 1 : up;
    else feature = Math.max(0, features.findLastIndex((index) => index <= wanted));
    update();
  });
  random.addEventListener("click", () => {
    const step = 1 + Math.floor(Math.random() * (features.length - 1)); // never the same again
    feature = (feature + step) % features.length;
    update();
  });
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    lines.forEach((line, i) => { line.hidden = !classes[i].toLowerCase().includes(wanted); });
  });
  boxes.forEach((box, i) => box.addEventListener("change", () => {
    if (box.checked) chosen[chosen.indexOf(null)] = i;
    else chosen[chosen.indexOf(i)] = null;
    update();
  }));
  drawings.push(update);

  const there = features.length < total ? `${features.length} of ${total} are in this page` : `0 to ${total - 1}`;
  const pick = make("div", "", { class: "row" },
    make("label", `Feature (${there})`, { for: number.id }), number, random);
  const list = make("fieldset", "", {}, make("legend", `Classes (up to ${MOST})`));
  if (classes.length > MANY) {
    list.append(make("div", "", { class: "row" }, make("label", "Filter", { for: filter.id }), filter));
  }
  list.append(make("div", "", { class: "choices" }, ...lines));
  figure.prepend(make("div", "", { class: "controls" }, pick, list), make("div", "", {}, plot, said));
}
