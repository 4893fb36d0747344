// Turns the order of every list of cards, and enlarges pictures; the cards themselves are in the page already.
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
const path = large.querySelector(".path");
const said = large.querySelector("[role=status]");

document.addEventListener("click", (event) => {
  const card = event.target.closest(".open")?.closest(".card");
  if (!card) return;
  large.querySelector(".picture").replaceChildren(card.querySelector("img").cloneNode());
  path.textContent = card.querySelector(".name").title;
  large.querySelector(".sure").textContent = card.querySelector(".sure")?.textContent ?? "labelled example";
  said.textContent = "";
  large.showModal();
});
large.addEventListener("click", (event) => {
  if (event.target === large) large.close(); // beside the picture
});
document.getElementById("close").addEventListener("click", () => large.close());
document.getElementById("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(path.textContent);
    said.textContent = "Copied.";
  } catch {
    window.getSelection().selectAllChildren(path); // without permission, the reader copies it
    said.textContent = "Selected: press Ctrl+C.";
  }
});
document.documentElement.dataset.drawn = "true";
