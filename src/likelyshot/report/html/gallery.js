// Turns the order of every list of cards; the cards themselves are in the page already.
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
document.documentElement.dataset.drawn = "true";
