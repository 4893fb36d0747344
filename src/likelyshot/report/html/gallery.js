// Turns the order of every list of cards, and enlarges pictures and long texts; the cards themselves are in the page already.
const order = document.querySelector(".order");
const buttons = [...order.querySelectorAll("button")];
let least = false;

for (const button of buttons) {
  button.addEventListener("click", () => {
    const wanted = button.value === "least";
    if (wanted !== least) for (const list of document.querySelectorAll(".turns")) list.append(...[...list.children].reverse());
    least = wanted;
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
  });
}
order.hidden = false;

const large = document.getElementById("large");
const title = document.getElementById("large-title");
const copy = document.getElementById("copy");
const path = large.querySelector(".path");
let copied = path; // the path of a picture, or the text itself
const said = large.querySelector("[role=status]");

document.addEventListener("click", (event) => {
  const button = event.target.closest(".open");
  if (!button) return;
  const card = button.closest(".card");
  const content = card.querySelector("img, .text").cloneNode(true);
  path.textContent = card.querySelector(".name").title;
  if (button.dataset.whole) content.textContent = button.dataset.whole;
  else content.alt = path.textContent;
  large.querySelector(".content").replaceChildren(content);
  copied = button.dataset.whole ? content : path;
  copy.textContent = button.dataset.whole ? "Copy the text" : "Copy the path";
  title.textContent = card.closest("section").querySelector("h2 bdi").textContent;
  large.querySelector(".sure").textContent = card.querySelector(".sure")?.textContent ?? "labelled example";
  said.textContent = "";
  large.showModal();
});
large.addEventListener("click", (event) => {
  if (event.target === large) large.close(); // beside the picture
});
document.getElementById("close").addEventListener("click", () => large.close());
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(copied.textContent);
    said.textContent = "Copied.";
  } catch {
    window.getSelection().selectAllChildren(copied); // without permission, the reader copies it
    said.textContent = "Selected: press Ctrl+C.";
  }
});
document.documentElement.dataset.drawn = "true";
