const field = document.querySelector("input");
const count = document.querySelector("output");
const all = [...document.querySelectorAll("article")].map((card) => ({
  card,
  text: card.textContent.toLowerCase(),
  // The parts of each message between its names: a whole line of a log has them all.
  messages: [...card.querySelectorAll("code")].map((code) =>
    code.textContent.toLowerCase().split("...").map((part) => part.trim()).filter(Boolean)),
}));
function search() {
  const line = field.value.toLowerCase();
  const words = line.split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const one of all) {
    const said = one.messages.some((parts) => parts.length > 0 && parts.every((part) => line.includes(part)));
    one.card.hidden = !said && !words.every((word) => one.text.includes(word));
    shown += one.card.hidden ? 0 : 1;
  }
  for (const section of document.querySelectorAll("section")) {
    section.hidden = !section.querySelector("article:not([hidden])");
  }
  count.textContent = shown === 0 ? "Nothing fits: search for fewer words, or run mco-rescue doctor" : shown + " of " + all.length;
}
field.addEventListener("input", search);
field.closest("p").hidden = false;
search();
