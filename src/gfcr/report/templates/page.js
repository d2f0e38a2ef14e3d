"use strict";
(() => {
  const tip = document.getElementById("tip");
  const place = (e) => {
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(6, Math.min(e.clientX + 14, innerWidth - w - 6)) + "px";
    tip.style.top = (e.clientY + h + 24 > innerHeight ? e.clientY - h - 12 : e.clientY + 16) + "px";
    tip.style.visibility = "visible";
  };
  const hide = () => { tip.style.visibility = "hidden"; };
  document.addEventListener("pointerover", (e) => {
    const at = e.target.closest ? e.target.closest("[data-tip]") : null;
    if (!at) return;
    tip.textContent = at.dataset.tip;
    place(e);
  });
  document.addEventListener("pointerout", (e) => { if (e.target.closest && e.target.closest("[data-tip]")) hide(); });
  for (const svg of document.querySelectorAll("svg.chart")) {
    const points = JSON.parse(svg.dataset.hover), cross = svg.querySelector(".cross");
    svg.addEventListener("pointermove", (e) => {
      if (!points.length) return;
      const box = svg.getBoundingClientRect(), x = (e.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const found = points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      cross.setAttribute("x1", found[0]);
      cross.setAttribute("x2", found[0]);
      cross.style.visibility = "visible";
      tip.textContent = found[1] + " " + svg.dataset.unit;
      for (const [name, colour, value] of found[2]) {
        const row = document.createElement("div"), mark = document.createElement("i");
        mark.style.background = "var(--" + colour + ")";
        row.append(mark, name + "  " + value);
        tip.append(row);
      }
      place(e);
    });
    svg.addEventListener("pointerleave", () => { cross.style.visibility = "hidden"; hide(); });
  }
})();
