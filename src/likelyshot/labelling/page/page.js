// The labelling page. Everything that comes from files is put in as text, never as markup.

const $ = id => document.getElementById(id);
const tab = crypto.randomUUID();
let clicks = 0;
let state = null; // what the server said last
let view = "rounds";
let cards = []; // of the screen, in order: {item, element, section}
let current = null;
let anchor = null; // where a selection with Shift began
let loading = false;

// ---- talking to the server ----

const queue = []; // clicks that are not saved yet, in order
let sending = false;
const others = "BroadcastChannel" in window ? new BroadcastChannel(location.pathname) : null; // tabs of the same page
others?.addEventListener("message", () => !sending && !loading && refresh());

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(60000) });
  if (answer.status === 403) throw new Refused(await answer.text());
  const found = await answer.json();
  if (!answer.ok) throw new Refused(found.error ?? "The server refused this.");
  return found;
}

class Refused extends Error {}

function act(action) {
  queue.push({ click: `${tab}-${++clicks}`, ...action });
  flush();
}

async function flush() {
  if (sending) return;
  sending = true;
  while (queue.length) {
    try {
      const found = await ask("act", { ...queue[0], items: visible() });
      queue.shift();
      banner("");
      if (!queue.length) update(found);
    } catch (error) {
      if (error instanceof Refused) {
        queue.shift();
        banner(error.message);
        if (!queue.length) await refresh();
        continue;
      }
      const count = queue.length === 1 ? "1 click is" : `${queue.length} clicks are`;
      banner(`The server does not answer. ${count} not saved yet: leave this page open, they are sent when it is back. Everything before is on disk.`);
      await new Promise(done => setTimeout(done, 1500));
    }
  }
  sending = false;
  others?.postMessage("saved");
  document.documentElement.dataset.saved = String(clicks);
}

async function refresh() {
  try {
    update(await ask(`state?items=${visible().join(",")}`));
    if (!queue.length && $("banner").dataset.away) banner("");
  } catch (error) {
    if (error instanceof Refused) banner(error.message);
    else {
      banner("The server does not answer. Everything up to the last click is on disk: run the command again and open the address that it prints.");
      $("banner").dataset.away = "yes";
    }
  }
}

function banner(text) {
  delete $("banner").dataset.away;
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

function visible() {
  return shownCards().map(card => card.item.number).slice(0, 400);
}

// ---- the head of the page ----

function update(found) {
  const before = state;
  state = found;
  if (queue.length === 0) {
    for (const card of shownCards()) {
      if (!(card.item.number in found.values)) continue;
      card.item.value = found.values[card.item.number];
      draw(card);
    }
  }
  $("undo").disabled = !found.can_undo;
  $("redo").disabled = !found.can_redo;
  const left = found.total - found.labelled - found.none;
  const parts = [`${found.labelled.toLocaleString()} of ${found.total.toLocaleString()} labelled`];
  if (found.none) parts.push(`${found.none.toLocaleString()} of no class`);
  if (found.skipped) parts.push(`${found.skipped.toLocaleString()} skipped`);
  parts.push(`${left.toLocaleString()} open`);
  $("counts").textContent = `${parts.join(", ")}. Saved in ${found.saved}.`;
  const said = found.expected.join(" ");
  if ($("expected").textContent !== said) $("expected").textContent = said;
  if (found.problem) banner(found.problem);
  else if (before?.problem && $("banner").textContent === before.problem) banner("");
  $("busy").textContent = found.working ? "Classifying the pile …" : "";
  if (!before || JSON.stringify(before.classes) !== JSON.stringify(found.classes)) drawClasses();
  if (!before || JSON.stringify(before.history) !== JSON.stringify(found.history)) plot(found.history);
  if (view === "rounds") finishSections();
  const names = new Set(found.classes.map(entry => entry.name));
  if (view === "rounds" && !queue.length && cards.some(card => card.section.classes.some(name => !names.has(name)))) nextScreen(); // renamed elsewhere, or back by undo
  document.documentElement.dataset.version = found.version;
}

function drawClasses() {
  const buttons = state.classes.map((entry, place) => {
    const button = make("button", { type: "button" });
    if (place < 10) {
      button.append(make("kbd", {}, String((place + 1) % 10)), " ");
      button.setAttribute("aria-keyshortcuts", String((place + 1) % 10));
    }
    const name = make("bdi");
    name.append(...breakable(entry.name));
    button.append(name, " ", make("span", { class: "count" }, String(entry.count)));
    button.setAttribute("aria-label", `${entry.name}, ${entry.count === 1 ? "1 label" : `${entry.count} labels`}`);
    button.addEventListener("click", () => give("label", entry.name));
    return button;
  });
  if (!buttons.length) buttons.push(make("span", { class: "quiet" }, "No class yet: select an item, type the name of its class into the field, and press Enter."));
  $("classes").replaceChildren(...buttons);
  $("class-names").replaceChildren(...state.classes.map(entry => make("option", { value: entry.name })));
  drawFilters();
}

function plot(history) {
  const picture = $("plot");
  picture.toggleAttribute("hidden", history.length < 2);
  if (history.length < 2) return;
  const most = Math.max(...history.map(point => point[0]), 1);
  const low = Math.min(...history.map(point => point[1]));
  const floor = Math.max(0, Math.floor(low * 10) / 10 - 0.1);
  const at = ([labels, accuracy]) => [26 + (labels / most) * 128, 50 - ((accuracy - floor) / (1 - floor)) * 44];
  const shape = (name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const points = [...history].sort((a, b) => a[0] - b[0]).map(at);
  const last = at(history[history.length - 1]);
  picture.replaceChildren(
    shape("path", { class: "frame", d: "M26 6V50H156", fill: "none" }),
    shape("polyline", { class: "curve", points: points.map(point => point.map(x => x.toFixed(1)).join(",")).join(" ") }),
    shape("circle", { cx: last[0].toFixed(1), cy: last[1].toFixed(1), r: 3 }),
    shape("text", { x: 22, y: 12, "text-anchor": "end" }, "100"),
    shape("text", { x: 22, y: 52, "text-anchor": "end" }, String(Math.round(100 * floor))),
    shape("text", { x: 156, y: 59, "text-anchor": "end" }, `${most} labels`),
  );
  const words = history.slice(-8).map(([labels, accuracy]) => `${Math.round(100 * accuracy)} % with ${labels} labels`);
  picture.setAttribute("aria-label", `Expected accuracy over the rounds: ${words.join(", ")}`);
}

function make(name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

// Lets a line break after an underscore, as names of folders have, and not within a word.
function breakable(text) {
  return text.split(/(?<=_)/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
}

// ---- cards ----

function makeCard(item, section) {
  const element = make("div", { class: "card", role: "option", tabindex: "-1", "data-number": item.number });
  const card = { item, element, section, off: false, selected: false };
  if (item.text !== null) {
    element.append(make("p", { class: "text", dir: "auto" }, item.text));
  } else if (item.picture) {
    const image = make("img", { alt: "", loading: "lazy", decoding: "async", src: `picture/${item.number}/small`, draggable: "false" });
    image.addEventListener("error", () => missing(card, image), { once: true });
    element.append(image);
  } else element.append(make("div", { class: "none" }, "no picture, only an embedding"));
  const name = make("span", { class: "name", title: item.name });
  name.append(make("bdi", {}, item.name.split(/[\\/]/).pop() || item.name));
  const line = make("span", { class: "says" });
  line.append(make("bdi"), make("span"));
  element.append(name, line);
  element.addEventListener("click", event => clicked(card, event));
  element.addEventListener("dblclick", () => enlarge(card));
  element.addEventListener("focus", () => point(card));
  draw(card);
  return card;
}

async function missing(card, image) {
  let why = "cannot be read";
  try {
    why = (await (await fetch(image.src, { cache: "no-store" })).text()).slice(0, 80);
  } catch { /* the server is away: the banner says so */ }
  image.replaceWith(make("div", { class: "none" }, why));
}

function says(card) {
  const { value, guess, doubt } = card.item;
  if (card.off) return `not ${card.section.classes[0]}`;
  if (value?.kind === "label") return doubt?.label === value.name ? `${value.name}, looks like ${doubt.better}` : value.name;
  if (value?.kind === "none") return "none of these";
  if (value?.kind === "skip") return "skipped";
  if (value?.kind === "not") return `not ${value.name}`;
  return guess ? `${guess.name}?` : "";
}

function draw(card) {
  const { element, item } = card;
  const labelled = item.value?.kind === "label" || item.value?.kind === "none";
  const grouped = card.section?.kind === "group" && !card.section.done && !labelled;
  element.classList.toggle("labelled", labelled);
  element.classList.toggle("off", card.off && !labelled);
  element.classList.toggle("in-group", grouped);
  element.setAttribute("aria-selected", String(grouped ? !card.off : card.selected));
  const text = card.off && labelled ? item.value.name || "none of these" : says(card);
  const sure = item.guess && !item.value && !card.off ? ` ${Math.min(99, Math.round(100 * item.guess.probability))}\u00a0%` : "";
  const [words, share] = element.querySelector(".says").children;
  if (words.textContent !== text) words.replaceChildren(...breakable(text));
  if (share.textContent !== sure) share.textContent = sure; // stays in view where the name of a class is cut
  const what = item.text !== null ? item.text.slice(0, 200) : item.name;
  const told = item.value?.kind === "label" ? `labelled ${text}` : `${text}${sure}` || "no label";
  element.setAttribute("aria-label", `${what}: ${told}`);
}

function shownCards() {
  return view === "rounds" ? cards : [...rows.values()];
}

function point(card, focus = false) {
  if (current && current !== card) {
    current.element.classList.remove("current");
    current.element.tabIndex = -1;
  }
  current = card;
  if (!card) return;
  card.element.classList.add("current");
  card.element.tabIndex = 0;
  if (focus) {
    card.element.focus({ preventScroll: true });
    card.element.scrollIntoView({ block: "nearest" });
  }
}

function clicked(card, event) {
  const from = anchor;
  point(card, true);
  if (card.section?.kind === "group" && !card.section.done && card.item.value?.kind !== "label") {
    card.off = !card.off;
    draw(card);
    return;
  }
  if (event.shiftKey && from) selectBetween(from, card);
  else {
    card.selected = !card.selected;
    anchor = card;
    draw(card);
  }
}

function selectBetween(one, other) {
  const all = shownCards();
  const [low, high] = [all.indexOf(one), all.indexOf(other)].sort((a, b) => a - b);
  if (low < 0) return;
  for (const card of all.slice(low, high + 1)) {
    card.selected = true;
    draw(card);
  }
}

function give(kind, name = "") {
  let chosen = shownCards().filter(card => card.selected);
  const many = chosen.length > 0;
  if (!many && current && shownCards().includes(current)) chosen = [current];
  if (!chosen.length) {
    banner("Select an item first.");
    return;
  }
  for (const card of chosen) {
    card.item.value = kind === "clear" ? null : { kind, name };
    card.selected = false;
    card.off = false;
    draw(card);
  }
  anchor = null;
  act({ do: "set", changes: chosen.map(card => [card.item.number, kind, name]) });
  if (kind !== "clear") advance(chosen[chosen.length - 1]);
  finishSections();
}

function advance(from) {
  const all = shownCards();
  const place = all.indexOf(from);
  const open = card => !card.item.value && !card.section?.done;
  const next = view === "all" ? all[place + 1] : all.slice(place + 1).find(open) ?? all.find(open);
  if (next) point(next, true);
}

// ---- screens ----

async function nextScreen() {
  if (loading) return;
  loading = true;
  $("go").disabled = true;
  $("busy").textContent = "Choosing what helps most …";
  document.documentElement.dataset.screen = "loading";
  try {
    while (queue.length || sending) await new Promise(done => setTimeout(done, 30));
    const screen = await ask("screen");
    showScreen(screen);
    await refresh();
    document.documentElement.dataset.screen = screen.number;
  } catch (error) {
    banner(error instanceof Refused ? error.message : "The server does not answer: run the command again and open the address that it prints.");
  }
  loading = false;
  $("go").disabled = false;
  if ($("busy").textContent.startsWith("Choosing")) $("busy").textContent = "";
}

function showScreen(screen) {
  cards = [];
  current = anchor = null;
  const parts = screen.sections.map((found, place) => {
    const section = { ...found, done: false };
    section.element = make("section", { class: "section", "aria-labelledby": `title-${place}` });
    const title = make("h2");
    section.words = make("span", { id: `title-${place}` });
    section.words.append(...breakable(found.title));
    title.append(section.words);
    const hint = { group: "Yes, all that are not struck off", doubt: "Yes, they are right" }[found.kind];
    if (hint) {
      section.button = make("button", { type: "button", "aria-keyshortcuts": "Enter" }, hint);
      section.button.addEventListener("click", () => confirm(section));
      title.append(" ", section.button);
    }
    const box = make("div", { class: "cards", role: "listbox", "aria-multiselectable": "true", "aria-label": found.title });
    section.cards = found.cards.map(item => makeCard(item, section));
    if (found.cards.some(item => item.text !== null)) box.classList.add("texts");
    box.append(...section.cards.map(card => card.element));
    cards.push(...section.cards);
    section.element.append(title, box);
    return section;
  });
  $("screen").replaceChildren(...parts.map(section => section.element));
  if (!parts.length) $("screen").append(make("p", {}, "Nothing is left to label: every item has an answer."));
  scrollTo({ top: 0 });
  if (cards.length) point(cards[0], true);
}

function confirm(section) {
  if (section.done) return;
  section.done = true;
  if (section.kind === "group") {
    const [name] = section.classes;
    const changes = [];
    for (const card of section.cards) {
      if (card.item.value && card.item.value.kind !== "skip") continue; // has an answer of its own already
      const kind = card.off ? "not" : "label";
      card.item.value = { kind, name };
      changes.push([card.item.number, kind, name]);
      draw(card);
    }
    if (changes.length) act({ do: "set", changes });
  } else act({ do: "check", numbers: section.cards.map(card => card.item.number) });
  finishSections();
  const after = cards.slice(cards.indexOf(section.cards[section.cards.length - 1]) + 1);
  const next = after.find(card => !card.item.value && !card.section.done);
  if (next) point(next, true);
}

function finishSections() {
  if (view !== "rounds" || loading || !cards.length) return;
  let open = 0;
  for (const section of new Set(cards.map(card => card.section))) {
    const left = section.cards.filter(card => !card.item.value).length;
    const rest = section.kind === "doubt" ? (section.done ? 0 : 1) : left;
    if (section.kind === "group" && left) section.done = false; // the confirmation was undone
    open += rest;
    section.element.classList.toggle("done", rest === 0);
    if (section.button) section.button.disabled = section.done;
  }
  if (open === 0) nextScreen();
}

// ---- all items: only what is in view is in the page ----

const rows = new Map(); // place in the list -> card
let total = 0;
let shape = { columns: 1, height: 200, width: 100 };
let asked = 0;
const pages = new Map(); // page -> promise of items
const PAGE = 60;

function drawFilters() {
  const chosen = $("which").value;
  const options = [["all", "", "all items"], ["open", "", "items without an answer"], ["none", "", "none of these"], ["skip", "", "skipped"]];
  for (const { name } of state.classes) options.push(["label", name, `labelled ${name}`]);
  for (const { name } of state.classes) options.push(["guess", name, `taken for ${name}`]);
  $("which").replaceChildren(...options.map(([which, name, text]) => make("option", { value: JSON.stringify([which, name]) }, text)));
  if (chosen) $("which").value = chosen;
  if ($("which").selectedIndex < 0) $("which").selectedIndex = 0;
}

function fetchPage(number) {
  if (!pages.has(number)) {
    const [which, name] = JSON.parse($("which").value);
    const query = new URLSearchParams({ which, name, text: $("search").value, start: number * PAGE, count: PAGE });
    const turn = asked;
    pages.set(number, ask(`browse?${query}`).then(found => {
      if (turn === asked && found.total !== total) {
        total = found.total;
        layOut();
      }
      return found.cards;
    }).catch(error => {
      pages.delete(number);
      banner(error instanceof Refused ? error.message : "The server does not answer.");
      return [];
    }));
  }
  return pages.get(number);
}

async function showList() {
  asked++;
  pages.clear();
  for (const card of rows.values()) card.element.remove();
  rows.clear();
  total = 0;
  const turn = asked;
  await fetchPage(0);
  if (turn !== asked) return;
  layOut();
  $("found").textContent = `${total.toLocaleString()} ${total === 1 ? "item" : "items"}`;
  document.documentElement.dataset.listed = String(total);
}

function layOut() {
  const width = $("list").clientWidth;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const texts = document.documentElement.dataset.kind === "text";
  const least = (texts ? 18 : innerWidth <= 640 ? 6.5 : 8.5) * rem;
  const columns = Math.max(1, Math.floor((width + 8) / (least + 8)));
  const cell = (width - 8 * (columns - 1)) / columns;
  shape = { columns, width: cell, height: (texts ? 12.5 * rem : cell + 2.8 * rem) + 8 };
  $("list").style.height = `${Math.ceil(total / columns) * shape.height}px`;
  for (const [place, card] of rows) put(card, place);
  drawList();
}

function put(card, place) {
  const style = card.element.style;
  style.left = `${(place % shape.columns) * (shape.width + 8)}px`;
  style.top = `${Math.floor(place / shape.columns) * shape.height}px`;
  style.width = `${shape.width}px`;
  style.height = `${shape.height - 8}px`;
}

async function drawList() {
  if (view !== "all") return;
  const top = Math.max(0, -$("list").getBoundingClientRect().top);
  const first = Math.max(0, (Math.floor(top / shape.height) - 2) * shape.columns);
  const last = Math.min(total, (Math.ceil((top + innerHeight) / shape.height) + 2) * shape.columns);
  for (const [place, card] of rows) {
    if ((place < first || place >= last) && card !== current && !card.selected) {
      card.element.remove();
      rows.delete(place);
    }
  }
  const turn = asked;
  for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) {
    const items = await fetchPage(page);
    if (turn !== asked || view !== "all") return;
    const now = Math.max(0, -$("list").getBoundingClientRect().top);
    if (Math.abs(now - top) > 4 * innerHeight) return; // scrolled on since
    items.forEach((item, offset) => {
      const place = page * PAGE + offset;
      if (place < first || place >= last || rows.has(place)) return;
      const card = makeCard(item, null);
      card.place = place;
      card.element.setAttribute("aria-posinset", String(place + 1));
      card.element.setAttribute("aria-setsize", String(total));
      put(card, place);
      rows.set(place, card);
      $("list").append(card.element);
    });
  }
  const sorted = [...rows.entries()].sort((a, b) => a[0] - b[0]);
  rows.clear();
  for (const [place, card] of sorted) rows.set(place, card);
  document.documentElement.dataset.drawnCards = String(rows.size);
}

async function choose(wanted) {
  view = wanted;
  for (const button of $("views").children) button.setAttribute("aria-pressed", String(button.value === wanted));
  const rounds = wanted === "rounds";
  $("screen").hidden = $("next").hidden = !rounds;
  $("list").hidden = $("filters").hidden = rounds;
  point(null);
  if (rounds) {
    await refresh();
    if (cards.length) point(cards[0]);
  } else await showList();
}

// ---- keys ----

function move(key, extend) {
  const all = shownCards();
  if (!all.length) return;
  if (view === "all" && (key === "Home" || key === "End")) return moveToEnd(key === "End");
  const from = all.indexOf(current);
  if (from < 0) return point(all[0], true);
  let to = from;
  if (key === "ArrowLeft") to = from - 1;
  else if (key === "ArrowRight") to = from + 1;
  else if (key === "Home") to = 0;
  else if (key === "End") to = all.length - 1;
  else {
    const here = current.element.getBoundingClientRect();
    const down = key === "ArrowDown";
    let best = Infinity;
    all.forEach((card, place) => {
      const there = card.element.getBoundingClientRect();
      const rise = down ? there.top - here.top : here.top - there.top;
      if (rise < here.height / 2) return;
      const away = rise * 4 + Math.abs(there.left - here.left);
      if (away < best) [best, to] = [away, place];
    });
  }
  to = Math.max(0, Math.min(all.length - 1, to));
  if (extend) selectBetween(current, all[to]);
  point(all[to], true);
}

async function moveToEnd(last) {
  scrollTo({ top: last ? document.documentElement.scrollHeight : 0 });
  await drawList();
  const card = rows.get(last ? total - 1 : 0);
  if (card) point(card, true);
}

function enlarge(card) {
  const box = $("large").firstElementChild;
  const { item } = card;
  const shown = item.text !== null ? make("p", { class: "text", dir: "auto" }, item.text)
    : item.picture ? make("img", { alt: item.name, src: `picture/${item.number}/large` }) : make("p", {}, "no picture, only an embedding");
  box.replaceChildren(shown, make("p", { class: "quiet" }, item.name));
  $("large").showModal();
}

addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  if (target instanceof HTMLInputElement || target instanceof HTMLSelectElement) {
    if (event.key === "Escape") (current ?? cards[0])?.element.focus();
    return;
  }
  const onButton = target instanceof HTMLButtonElement || target.tagName === "SUMMARY";
  const { key } = event;
  if (/^[0-9]$/.test(key)) {
    const entry = state?.classes[(Number(key) + 9) % 10];
    if (entry) give("label", entry.name);
    else banner(`There is no class ${key} yet: press c and type its name.`);
  } else if (/^(Arrow|Home$|End$)/.test(key)) move(key, event.shiftKey);
  else if (key === " " && !onButton && current) clicked(current, event);
  else if (key === "Enter" && !onButton && current) accept();
  else if (key === "n") give("none");
  else if (key === "s") give("skip");
  else if (key === "Delete" || key === "Backspace") give("clear");
  else if (key === "u") act({ do: "undo" });
  else if (key === "r") act({ do: "redo" });
  else if (key === "v" && current) enlarge(current);
  else if (key === "g" && view === "rounds") nextScreen();
  else if (key === "c" || key === "/") {
    $("class-name").focus();
    $("class-name").select();
  } else if (key === "m") beginRenaming();
  else if (key === "?") $("help").showModal();
  else if (key === "Escape") {
    for (const card of shownCards()) {
      card.selected = false;
      draw(card);
    }
  } else return;
  event.preventDefault();
});

function accept() {
  const { section, item } = current;
  if (section && (section.kind === "group" || section.kind === "doubt") && !section.done) confirm(section);
  else if (item.guess && !item.value) give("label", item.guess.name);
  else if (!item.guess) banner("Nothing is suggested for this item yet: press the digit of a class.");
}

// ---- classes that get another name ----

function beginRenaming() {
  if (!state?.classes.length) {
    banner("There is no class yet: press c and type its name.");
    return;
  }
  const likely = current?.item.value?.name || $("old-name").value;
  $("old-name").replaceChildren(...state.classes.map(entry => make("option", { value: entry.name }, entry.name)));
  if (state.classes.some(entry => entry.name === likely)) $("old-name").value = likely;
  $("new-name").value = "";
  foretell();
  $("renaming").showModal();
}

function foretell() {
  const [old, name] = [$("old-name").value, $("new-name").value.trim()];
  const entry = state.classes.find(found => found.name === old);
  const merged = name !== old && state.classes.some(found => found.name === name);
  const labels = entry?.count === 1 ? "1 label" : `${(entry?.count ?? 0).toLocaleString()} labels`;
  const effect = merged ? `${old} and ${name} become one class, ${name}, with the ${labels} of ${old}.` : `${old} is called ${name} from now on: ${labels}.`;
  $("renaming-effect").textContent = name && name !== old ? `${effect} Undo takes it back.` : "";
  $("do-rename").textContent = merged ? "Merge" : "Rename";
  $("do-rename").disabled = !name || name === old;
}

function rename(old, name) {
  const merged = state.classes.some(entry => entry.name === name);
  for (const card of new Set([...cards, ...rows.values()])) {
    const { item } = card;
    if (item.value?.name === old) item.value = merged && item.value.kind === "not" ? null : { ...item.value, name };
    if (item.guess?.name === old) item.guess = { ...item.guess, name };
    draw(card);
  }
  for (const section of new Set(cards.map(card => card.section))) {
    if (!section.classes.includes(old)) continue;
    section.classes = section.classes.map(found => (found === old ? name : found));
    const [one, other] = section.classes;
    section.words.textContent = section.kind === "group" ? `Are these all ${one}?` : `${one} or ${other}?`;
  }
  act({ do: "rename", old, name });
}

$("change").addEventListener("click", beginRenaming);
$("old-name").addEventListener("change", foretell);
$("new-name").addEventListener("input", foretell);
$("keep-names").addEventListener("click", () => $("renaming").close());
$("rename").addEventListener("submit", event => {
  event.preventDefault();
  const [old, name] = [$("old-name").value, $("new-name").value.trim()];
  $("renaming").close();
  if (name && name !== old) rename(old, name);
});

// ---- the rest of the page ----

$("new-class").addEventListener("submit", event => {
  event.preventDefault();
  const name = $("class-name").value.trim();
  if (!name) return;
  if (!state.classes.some(entry => entry.name === name)) {
    act({ do: "class", name });
    state.classes.push({ name, count: 0 });
    drawClasses();
  }
  $("class-name").value = "";
  if (current || shownCards().some(card => card.selected)) give("label", name);
});
$("undo").addEventListener("click", () => act({ do: "undo" }));
$("redo").addEventListener("click", () => act({ do: "redo" }));
$("none").addEventListener("click", () => give("none"));
$("skip").addEventListener("click", () => give("skip"));
$("clear").addEventListener("click", () => give("clear"));
$("go").addEventListener("click", () => nextScreen());
$("ask").addEventListener("click", () => $("help").showModal());
for (const button of $("views").children) button.addEventListener("click", () => choose(button.value));
$("which").addEventListener("change", showList);
$("search").addEventListener("input", () => {
  clearTimeout(showList.timer);
  showList.timer = setTimeout(showList, 250);
});
addEventListener("scroll", () => requestAnimationFrame(drawList), { passive: true });
addEventListener("resize", () => view === "all" && layOut());
addEventListener("beforeunload", event => queue.length && event.preventDefault());

async function write(path, body) {
  $("done").textContent = "Writing …";
  try {
    while (queue.length) await new Promise(done => setTimeout(done, 30));
    $("done").textContent = (await ask(path, body)).done;
  } catch (error) {
    $("done").textContent = error instanceof Refused ? error.message : "The server does not answer.";
  }
}

$("finish").addEventListener("click", () => {
  $("saved").textContent = `Your labels are in ${state.saved}, always up to date: likelyshot classify --support reads it.`;
  $("export").showModal();
});
$("accept").addEventListener("click", () => write("accept", { above: Number($("above").value) / 100 }));

async function begin() {
  const about = await ask("about");
  document.documentElement.dataset.kind = about.kind;
  if (about.kind === "text") $("list").classList.add("texts");
  $("exports").replaceChildren(...Object.entries(about.exports).map(([kind, text]) => {
    const line = make("li");
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => write("export", { kind }));
    line.append(button);
    return line;
  }));
  $("trouble").hidden = !about.problems.length;
  $("trouble").querySelector("summary").textContent = `Notes (${about.problems.length})`;
  $("trouble").querySelector("ul").replaceChildren(...about.problems.map(text => make("li", {}, text)));
  await refresh();
  await nextScreen();
  setInterval(() => {
    if (!document.hidden && !sending && !loading) refresh();
  }, 2000);
}

begin().catch(error => banner(error instanceof Refused ? error.message : "The page could not begin: load it again."));
