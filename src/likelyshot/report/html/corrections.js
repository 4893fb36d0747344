// Lets a reader name the right class of a picture or a text, and save that as a table that `classify --support` reads.
const corrections = new Map(); // path or text -> the right class, and the one that was predicted
const save = document.getElementById("save-corrections");
const saveFromMenu = document.getElementById("save-from-menu"); // in reach wherever the reader is
let saved = true;
const told = document.getElementById("corrections-told");
const tools = document.getElementById("corrections");
const command = document.querySelector("#told-command code");
const { inPage, again } = command.dataset;
const cards = [...document.querySelectorAll(".card[data-correct]")]; // all are pictures, or all are texts
const fields = new Map(); // path or text -> its fields
const column = cards[0]?.dataset.correct;

for (const card of cards) {
  const name = card.querySelector(".name").title;
  const key = column === "path" ? name : (card.querySelector("[data-whole]")?.dataset.whole ?? card.querySelector(".text")?.textContent);
  const field = document.createElement("input");
  field.className = "right";
  field.placeholder = "right class";
  field.setAttribute("list", "known-classes");
  field.setAttribute("aria-label", `Right class of ${name}`);
  field.addEventListener("change", () => {
    const label = field.value.trim();
    if (label) corrections.set(key, [label, card.dataset.predicted]);
    else corrections.delete(key);
    for (const other of fields.get(key)) other.value = label; // a card may be among the least certain, too
    save.disabled = corrections.size === 0;
    saveFromMenu.hidden = save.disabled;
    save.textContent = corrections.size ? `Save corrections (${corrections.size})` : "Save corrections";
    saveFromMenu.textContent = corrections.size ? `Save (${corrections.size})` : "Save";
    saved = save.disabled;
  });
  fields.set(key, [...(fields.get(key) ?? []), field]);
  card.append(field);
}

const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

save.addEventListener("click", () => {
  const lines = [...corrections].map(([key, classes]) => {
    const safe = /^[=+\-@\t\r\n]/.test(key) ? `'${key}` : key; // as tables of answers write such names
    return `${[safe, ...classes].map(cell).join(",")}\n`;
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${column},label,predicted\n${lines.join("")}`], { type: "text/csv" }));
  link.download = "corrections.csv";
  link.click();
  URL.revokeObjectURL(link.href);
  saved = true;
  told.textContent = "Move corrections.csv from your downloads to the folder where you ran the command, and run there:";
  command.textContent = again;
  command.parentElement.hidden = false;
});
saveFromMenu.addEventListener("click", () => {
  save.click();
  tools.scrollIntoView({ block: "center" });
});
window.addEventListener("beforeunload", (event) => {
  if (!saved) event.preventDefault(); // the browser asks whether to leave
});
document.getElementById("correct").addEventListener("click", () => {
  command.textContent = inPage;
  command.parentElement.hidden = false;
  told.textContent = "Run this command to correct them in the labelling page:";
});
save.disabled = true;
save.hidden = !document.querySelector(".right");
tools.hidden = false;
