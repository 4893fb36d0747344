// A map of images: a point each. The nearest one to the pointer, or the next one by keyboard, is shown with its picture.

const SVG = "http://www.w3.org/2000/svg";

function imageMap(figure) {
  const { x, y, labels, names, pictures, classes } = JSON.parse(figure.querySelector("script").textContent);
  const area = make("div", "", { class: "area", tabindex: 0, role: "group", "aria-label": "Map; arrow keys go from image to image" });
  const picture = make("img", "", { alt: "" });
  const name = make("p", "");
  const group = make("p", "", { class: "quiet" });
  const card = make("div", "", { class: "card", role: "status" }, picture, name, group);
  const list = make("select", "", { id: `${figure.id}-class` }, make("option", "all", { value: -1 }),
    ...classes.map((title, i) => make("option", title, { value: i })));
  let shown = 0;
  let places = [];
  let dots = [];
  let ring = null;

  function show(i) {
    shown = i;
    picture.hidden = !pictures[i];
    if (pictures[i]) picture.src = pictures[i]; else picture.removeAttribute("src");
    name.replaceChildren(...breakable(names[i]));
    group.replaceChildren(...(classes.length > 1 ? breakable(`class: ${classes[labels[i]]}`) : []));
    if (!ring) return;
    ring.setAttribute("cx", places[i][0]);
    ring.setAttribute("cy", places[i][1]);
  }

  function shape(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function update() {
    const width = Math.max(240, area.clientWidth);
    const height = Math.round(Math.min(560, Math.max(300, 0.7 * width)));
    const scale = (values, length) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return values.map((value) => (high > low ? 14 + ((value - low) / (high - low)) * (length - 28) : length / 2));
    };
    const [across, down] = [scale(x, width), scale(y.map((value) => -value), height)];
    places = across.map((value, i) => [value, down[i]]);
    const only = Number(list.value);
    const r = Math.max(2.5, Math.min(5, Math.sqrt((width * height) / names.length) / 4)); // many on a phone: smaller
    dots = places.map(([cx, cy], i) => shape("circle", {
      cx, cy, r, fill: colour(labels[i], only < 0 || only === labels[i] ? 0.85 : 0.12), stroke: ink("--ground"),
    }));
    ring = shape("circle", { r: 10, fill: "none", stroke: ink("--text"), "stroke-width": 2 });
    area.replaceChildren(shape("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, ...dots, ring));
    show(shown);
  }

  // On to the next image of the chosen class; without a step, to the first one if the image shown is of another.
  function go(step) {
    const only = Number(list.value);
    const found = labels.map((_, i) => i).filter((i) => only < 0 || only === labels[i]);
    const at = found.indexOf(shown);
    if (found.length) show(found[at < 0 ? 0 : (at + step + found.length) % found.length]);
  }

  function near(event) {
    const box = area.getBoundingClientRect();
    const only = Number(list.value);
    let best = Infinity;
    let found = shown;
    places.forEach(([cx, cy], i) => {
      const distance = Math.hypot(cx - (event.clientX - box.left), cy - (event.clientY - box.top));
      if (distance < best && (only < 0 || only === labels[i])) [best, found] = [distance, i];
    });
    if (found !== shown) show(found);
  }

  area.addEventListener("pointermove", near);
  area.addEventListener("pointerdown", near);
  area.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    go(step);
  });
  list.addEventListener("change", () => {
    update();
    go(0);
  });
  const choose = make("div", "", { class: "row" }, make("label", "Class", { for: list.id }), list);
  figure.prepend(...(classes.length > 1 ? [choose] : []), make("div", "", { class: "beside" }, area, card));
  drawings.push(update);
}
