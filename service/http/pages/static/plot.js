"use strict";
// One stop of the tab key for the whole picture; arrows step from call to call.
for (const plot of document.querySelectorAll("svg[data-steps]")) {
  const steps = [...plot.querySelectorAll("a")];
  const readout = plot.parentElement.querySelector(".readout");
  const tell = (event) => {
    const step = event.target.closest("a");
    if (step) readout.textContent = step.getAttribute("aria-label");
  };
  // Who looks reads it here; who listens hears the links' own names.
  plot.addEventListener("mouseover", tell);
  plot.addEventListener("focusin", tell);
  plot.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const at = steps.indexOf(document.activeElement);
    if (by === undefined || at < 0) return;
    event.preventDefault();
    const next = Math.min(steps.length - 1, Math.max(0, at + by));
    steps[at].setAttribute("tabindex", "-1");
    steps[next].setAttribute("tabindex", "0");
    steps[next].focus();
  });
}
