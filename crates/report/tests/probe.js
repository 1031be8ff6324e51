// Runs first in the page: records errors, uses each figure like a reader, and reports its findings to the
// page around it.
"use strict";
(() => {
  const problems = [];
  addEventListener("error", event => problems.push(`uncaught: ${event.message || event.target.outerHTML}`), true);
  addEventListener("unhandledrejection", event => problems.push(`rejected: ${event.reason}`));
  document.addEventListener("securitypolicyviolation", event => problems.push(`wanted: ${event.blockedURI}`));
  for (const level of ["error", "warn"]) console[level] = (...words) => problems.push(`${level}: ${words.join(" ")}`);
  const wait = time => new Promise(done => setTimeout(done, time));

  function ink(canvas) {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
    return seen.size;
  }
  function pointAt(over, part) {
    const { left, top, width, height } = over.getBoundingClientRect();
    const at = { clientX: left + width * part, clientY: top + height / 2, bubbles: true };
    for (const kind of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(kind, at));
  }
  async function use(figure) {
    const one = selector => figure.querySelector(selector);
    const plot = one(".plot"), canvas = one("canvas"), table = one("details table");
    plot.scrollIntoView();
    const seen = {
      title: one("h3").textContent,
      width: canvas?.width ?? 0, height: canvas?.height ?? 0, inked: canvas && canvas.width ? ink(canvas) : 0,
      role: plot.getAttribute("role"), label: plot.getAttribute("aria-label"), reachable: plot.tabIndex === 0,
      caption: table?.caption?.textContent ?? "", rows: table?.tBodies[0].rows.length ?? 0,
      heads: [...figure.querySelectorAll("th")].every(head => ["row", "col"].includes(head.scope)),
      series: table ? table.tHead.rows[0].cells.length - 1 : 0,
      tip: "", spoken: "", legend: figure.querySelectorAll(".legend button").length, switched: true,
    };
    if (!canvas) return seen;
    pointAt(one(".u-over"), 0.5);
    await wait(50);
    seen.tip = one(".tip").hidden ? "" : one(".tip").innerText;
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
    await wait(50);
    seen.spoken = one(".spoken").textContent;
    for (const button of figure.querySelectorAll(".legend button")) {
      const before = canvas.toDataURL();
      button.click();
      await wait(50);
      seen.switched &&= button.getAttribute("aria-pressed") === "false" && (canvas.toDataURL() !== before || seen.rows === 0);
      button.click();
      await wait(50);
      seen.switched &&= button.getAttribute("aria-pressed") === "true";
    }
    return seen;
  }

  addEventListener("load", async () => {
    await wait(200);
    const figures = [];
    for (const figure of document.querySelectorAll("figure")) figures.push(await use(figure));
    const seen = {
      figures, problems, harmed: "harmed" in window, title: document.title,
      tables: document.querySelectorAll("main > section > .sheet table").length,
      requests: performance.getEntriesByType("resource").map(entry => entry.name),
      page: getComputedStyle(document.body).backgroundColor, wider: document.documentElement.scrollWidth - innerWidth, width: innerWidth,
    };
    document.querySelector(".themes [data-theme=dark]").click();
    await wait(50);
    seen.dark = getComputedStyle(document.body).backgroundColor;
    document.querySelector(".themes [data-theme=light]").click();
    await wait(50);
    seen.light = getComputedStyle(document.body).backgroundColor;
    dispatchEvent(new Event("beforeprint"));
    await wait(50);
    dispatchEvent(new Event("afterprint"));
    await wait(50);
    parent.postMessage(JSON.stringify(seen).replaceAll("<", "\\u003c"), "*");
  });
})();
