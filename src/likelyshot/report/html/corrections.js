// Lets a reader name the right class of a picture, and save that as a table that `classify --support` reads.
const corrections = new Map(); // path -> class
const save = document.getElementById("save-corrections");
const told = document.getElementById("corrections-told");
const tools = document.getElementById("corrections");

for (const card of document.querySelectorAll(".cards:not(.labelled) > .card:has(img)")) {
  const name = card.querySelector(".name").title;
  const field = document.createElement("input");
  field.className = "right";
  field.placeholder = "right class";
  field.setAttribute("list", "known-classes");
  field.setAttribute("aria-label", `Right class of ${name}`);
  field.addEventListener("change", () => {
    const label = field.value.trim();
    if (label) corrections.set(name, label);
    else corrections.delete(name);
    for (const other of document.querySelectorAll(".right")) {
      if (other.closest(".card").querySelector(".name").title === name) other.value = label;
    }
    save.disabled = corrections.size === 0;
    save.textContent = corrections.size ? `Save ${corrections.size} corrections` : "Save corrections";
  });
  card.append(field);
}

const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

save.addEventListener("click", () => {
  const lines = [...corrections].map(([path, label]) => {
    const safe = /^[=+\-@\t\r\n]/.test(path) ? `'${path}` : path; // as tables of answers write such names
    return `${cell(safe)},${cell(label)}\n`;
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`path,label\n${lines.join("")}`], { type: "text/csv" }));
  link.download = "corrections.csv";
  link.click();
  URL.revokeObjectURL(link.href);
  told.textContent = "Put corrections.csv into the folder where the command was run: likelyshot classify --support reads it there.";
});
document.getElementById("correct").addEventListener("click", () => {
  document.getElementById("label-command").hidden = false;
  told.textContent = "Run this command to correct them in the labelling page:";
});
save.disabled = true;
save.hidden = !document.querySelector(".right");
tools.hidden = false;
