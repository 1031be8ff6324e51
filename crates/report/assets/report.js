// Draws what the element #figures describes; src/page.rs says what is in it.
"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = [];
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
  const THIN = "\u202f", SPACE = "\u00a0", NONE = "–";

  // A canvas cannot use CSS variables: an element resolves them in the current theme.
  const colours = {};
  function readColours() {
    const probe = document.body.appendChild(document.createElement("i"));
    for (const name of ["text", "quiet", "card", "grid", ...Array.from({ length: 8 }, (_, i) => "colour-" + i)]) {
      probe.style.color = `var(--${name})`;
      colours[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }
  const faint = (colour, part) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${part})`);

  // Writes numbers like src/unit.rs.
  function fixed(value, decimals) {
    const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
    const text = whole.replace(/\B(?=(\d{3})+$)/g, THIN) + (rest ? "." + rest : "");
    return (value < 0 && /[1-9]/.test(text) ? "−" : "") + text;
  }
  const withSuffix = (text, suffix) => suffix === "" ? text : text + (suffix === "×" ? "" : SPACE) + suffix;
  function alone(value, multiples, short) {
    const [by, , suffix] = multiples.findLast(([, from]) => Math.abs(value) >= from) || multiples[0];
    const v = value / by;
    const digits = v === 0 ? 1 : Math.floor(Math.log10(Math.abs(v))) + 1;
    let text = fixed(v, Number.isInteger(v) ? 0 : Math.min(6, Math.max(0, 3 - digits)));
    if (short && text.includes(".")) text = text.replace(/\.?0+$/, "");
    return withSuffix(text, suffix);
  }
  function clock(seconds, form, decimals) {
    const tens = 10 ** decimals;
    const parts = Math.round(Math.abs(seconds) * tens);
    const whole = Math.floor(parts / tens);
    const two = n => String(n).padStart(2, "0");
    const text = form[0] === "h"
      ? `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`
      : `${Math.floor(whole / 60)}:${two(whole % 60)}`;
    return (seconds < 0 ? "−" : "") + text + (decimals ? "." + String(parts % tens).padStart(decimals, "0") : "");
  }
  function written(value, scale) {
    if (value == null) return NONE;
    if (scale.log) return alone(value, scale.multiples);
    if (scale.clock) return clock(value, scale.clock, scale.decimals);
    return withSuffix(fixed(value, scale.decimals), scale.suffix);
  }
  function decimalsOf(step) {
    let decimals = 0;
    while (decimals < 9 && Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6) decimals++;
    return decimals;
  }
  function tick(value, scale, step) {
    if (value == null) return "";
    if (scale.log) return alone(value, scale.multiples, true);
    if (scale.clock) return clock(value, scale.clock, decimalsOf(step));
    return fixed(value, decimalsOf(step));
  }
  function steps(scale) {
    if (scale.clock) return [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 604800];
    const all = [];
    if (scale.binary) for (let power = -10; power < 60; power++) all.push(2 ** power);
    else for (let power = -9; power < 16; power++) for (const n of [1, 2, 5]) all.push(Number(`${n}e${power}`));
    // Counts have no fractions.
    return scale.decimals === 0 ? all.filter(step => step >= 1) : all;
  }

  const FEW = 4;
  // uPlot starts at the end of the axis, which may not be a round number.
  function logSplits(base) {
    return (u, _, min, max) => {
      const all = [];
      // Of the round numbers 1 to 9 few are in a small part of a decade.
      if (base === 10 && max / min < FEW) {
        const step = steps({}).find(step => (max - min) / step <= 6) ?? max - min;
        for (let n = Math.ceil(min / step); n * step <= max; n++) all.push(Number((n * step).toPrecision(9)));
        return all;
      }
      const near = base === 2 ? Math.log2 : Math.log10;
      for (let power = Math.floor(near(min)); power <= Math.ceil(near(max)); power++)
        for (let n = 1; n < base; n++) all.push(base === 2 ? 2 ** power : Number(`${n}e${power}`));
      return all.filter(value => value >= min * (1 - 1e-9) && value <= max * (1 + 1e-9));
    };
  }

  // As many of those get a label as fit, round numbers first.
  function logLabels(base, room) {
    return (u, splits, axis) => {
      const { scale } = u.axes[axis], taken = [], labelled = new Set();
      const far = value => {
        const at = u.valToPos(value, scale);
        return taken.every(other => Math.abs(other - at) >= room) && taken.push(at);
      };
      const rank = value => base === 2 ? [4, 2, 1].findIndex(n => Math.round(Math.log2(value)) % n === 0)
        : "152374689".indexOf(value.toExponential()[0]);
      for (const value of [...splits].sort((a, b) => rank(a) - rank(b))) if (far(value)) labelled.add(value);
      return splits.map(value => labelled.has(value) ? value : null);
    };
  }

  // How series differ besides their colour.
  const dashes = series => series.dashed ? [7, 4] : series.again ? [2, 3] : undefined;
  const SHAPES = 6;
  function outline(shape, x, y, r) {
    const corners = {
      1: [[-1, -1], [1, -1], [1, 1], [-1, 1]], 2: [[0, -1.3], [1.2, 0.9], [-1.2, 0.9]], 3: [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
      4: [[0, 1.3], [1.2, -0.9], [-1.2, -0.9]], 5: [[-1.4, -0.6], [1.4, -0.6], [1.4, 0.6], [-1.4, 0.6]],
    }[shape];
    return corners && corners.map(([dx, dy]) => [x + dx * r * 0.9, y + dy * r * 0.9]);
  }
  function marker(path, shape, x, y, r) {
    const corners = outline(shape, x, y, r);
    if (!corners) {
      path.moveTo(x + r, y);
      path.arc(x, y, r, 0, 2 * Math.PI);
      return;
    }
    corners.forEach(([cx, cy], i) => i ? path.lineTo(cx, cy) : path.moveTo(cx, cy));
    path.closePath();
  }
  const marked = figure => figure.kind === "curves" || figure.kind === "points";
  const filled = figure => figure.kind === "stacked" || figure.kind === "bars" || figure.kind === "steps";
  function swatch(figure, series) {
    const colour = `var(--colour-${series.colour})`;
    let inside = "";
    if (filled(figure)) {
      const dash = dashes(series);
      const look = `fill-opacity="${series.dashed || figure.kind === "steps" ? 0.25 : 0.88}" ${dash ? 'stroke-dasharray="3 2"' : ""}`;
      inside = `<rect x="1" y="1" width="12" height="10" rx="2" fill="${colour}" stroke="${colour}" stroke-width="1.5" ${look}/>`;
      return `<svg width="14" height="12" aria-hidden="true">${inside}</svg>`;
    }
    if (figure.kind !== "points") {
      const dash = dashes(series);
      inside += `<path d="M0 6H26" stroke="${colour}" stroke-width="2.5" ${dash ? `stroke-dasharray="${dash}"` : ""}/>`;
    }
    if (marked(figure)) {
      const corners = outline(series.colour % SHAPES, 13, 6, 4);
      const look = `fill="${series.dashed ? "var(--card)" : colour}" stroke="${colour}" stroke-width="1.5"`;
      inside += corners ? `<polygon points="${corners.join(" ")}" ${look}/>` : `<circle cx="13" cy="6" r="4" ${look}/>`;
    }
    return `<svg width="26" height="12" aria-hidden="true">${inside}</svg>`;
  }

  // Stacks each visible series on top of those before it. A row without any value is a gap.
  function stack(figure, visible) {
    const [places, ...columns] = figure.data;
    const sums = places.map(() => 0);
    const there = places.map((_, row) => columns.some((column, i) => visible[i] && column[row] != null));
    const data = columns.map((column, i) =>
      visible[i] ? column.map((value, row) => there[row] ? (sums[row] += value || 0) : null) : column.map(() => null));
    const bands = [];
    let below = -1;
    visible.forEach((shown, i) => {
      if (!shown) return;
      if (below >= 0) bands.push({ series: [i + 1, below + 1] });
      below = i;
    });
    return { data: [places, ...data], bands };
  }
  function dataOf(figure, visible) {
    if (figure.kind === "stacked") return stack(figure, visible);
    if (figure.kind !== "steps" || figure.data[0].length < 2) return { data: figure.data, bands: [] };
    // The last place ends the step before it.
    const data = figure.data.map((column, i) => i ? [...column.slice(0, -1), column.at(-2)] : column);
    return { data, bands: [] };
  }

  // Grouped bars: uPlot has none.
  function bars(figure, visible) {
    return (u, index, first, last) => {
      const group = visible.flatMap((shown, i) => shown ? [i] : []);
      const ratio = uPlot.pxRatio;
      const width = 0.8 / group.length;
      const begin = -0.4 + group.indexOf(index - 1) * width;
      const zero = u.valToPos(u.scales.y.distr === 3 ? u.scales.y.min : 0, "y", true);
      const path = new Path2D();
      for (let row = first; row <= last; row++) {
        const value = u.data[index][row];
        if (value == null) continue;
        const left = u.valToPos(u.data[0][row] + begin, "x", true);
        const right = u.valToPos(u.data[0][row] + begin + width, "x", true);
        const gap = right - left > 6 * ratio ? ratio : 0;
        const most = 72 * ratio;
        const middle = (left + right) / 2, half = Math.min(right - left - 2 * gap, most) / 2;
        const top = u.valToPos(value, "y", true);
        path.rect(middle - half, Math.min(top, zero), 2 * half, Math.abs(zero - top));
      }
      return { stroke: path, fill: path, clip: null, flags: 3 };
    };
  }
  // The value above each bar, if there is room for all values.
  function barLabels(figure, visible, u, taken) {
    const group = visible.flatMap((shown, i) => shown ? [i] : []);
    const { ctx } = u, ratio = uPlot.pxRatio;
    const width = 0.8 / group.length;
    const room = u.valToPos(width, "x", true) - u.valToPos(0, "x", true);
    ctx.font = `${11 * ratio}px ${FONT}`;
    const texts = group.map(i => figure.data[i + 1].map(value => value == null ? "" : written(value, { ...figure.y, suffix: "" })));
    const widest = Math.max(0, ...texts.flat().map(text => ctx.measureText(text).width));
    if (widest + 4 * ratio > room) return;
    ctx.fillStyle = colours.text;
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    group.forEach((i, at) => texts[at].forEach((text, row) => {
      const value = figure.data[i + 1][row];
      if (value == null || value < 0) return;
      const x = u.valToPos(row - 0.4 + (at + 0.5) * width, "x", true), y = u.valToPos(value, "y", true) - 3 * ratio;
      ctx.fillText(text, x, y);
      taken.push([x - widest / 2, y - 6 * ratio, widest]);
    }));
  }

  // Lines across the figure, with labels that do not overlap.
  function drawMarks(figure, u, taken) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    const right = bbox.left + bbox.width, bottom = bbox.top + bbox.height;
    ctx.font = `600 ${12 * ratio}px ${FONT}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.lineJoin = "round";
    const high = 16 * ratio;
    const label = (text, x, y, step) => {
      const width = ctx.measureText(text).width;
      x = Math.max(bbox.left + 2 * ratio, Math.min(x, right - width - 2 * ratio));
      const hits = () => taken.some(([l, t, w]) => x < l + w && l < x + width && Math.abs(y - t) < high);
      for (let tries = 0; tries < 8 && hits(); tries++) y += step;
      taken.push([x, y, width]);
      ctx.strokeStyle = faint(colours.card, 0.85);
      ctx.lineWidth = 4 * ratio;
      ctx.strokeText(text, x, y);
      ctx.fillStyle = colours.text;
      ctx.fillText(text, x, y);
    };
    const line = (dash, ...points) => {
      ctx.beginPath();
      ctx.setLineDash(dash.map(n => n * ratio));
      ctx.moveTo(points[0], points[1]);
      ctx.lineTo(points[2], points[3]);
      ctx.strokeStyle = colours.text;
      ctx.lineWidth = 1.5 * ratio;
      ctx.stroke();
      ctx.setLineDash([]);
    };
    ctx.save();
    const levels = figure.levels.map(level => [level, u.valToPos(level.at, "y", true)]).filter(([, y]) => y >= bbox.top - 1 && y <= bottom + 1);
    const marks = figure.marks.map(mark => [mark, u.valToPos(mark.at, "x", true)]).filter(([, x]) => x >= bbox.left - 1 && x <= right + 1);
    levels.forEach(([, y]) => line([], bbox.left, y, right, y));
    marks.forEach(([, x]) => line([2, 3], x, bbox.top, x, bottom));
    levels.forEach(([level, y]) => {
      const below = y - high < bbox.top;
      label(level.label, right, below ? y + high * 0.6 : y - high * 0.6, below ? high : -high);
    });
    marks.forEach(([mark, x]) => {
      const width = ctx.measureText(mark.label).width + 6 * ratio;
      label(mark.label, x + width > right ? x - width : x + 6 * ratio, bbox.top + high * 0.6, high);
    });
    ctx.restore();
  }

  function xScale(figure) {
    const places = figure.data[0], last = places.length - 1;
    if (figure.names) return { time: false, range: [-0.5, Math.max(0.5, last + 0.5)] };
    const { log, binary } = figure.x;
    if (log) {
      const base = binary ? 2 : 10;
      const range = (_, min, max) => {
        if (min == null) return [1, base];
        // Markers at the edge would be cut off.
        return min === max ? [min / base, max * base] : marked(figure) && min === places[0] && max === places[last] ? [min / 1.1, max * 1.1] : [min, max];
      };
      return { time: false, distr: 3, log: base, range };
    }
    const range = (_, min, max) => {
      if (min == null) return [0, 1];
      if (min === max) return [min - 1, max + 1];
      const rim = marked(figure) && min === places[0] && max === places[last] ? (max - min) * 0.03 : 0;
      return [min - rim, max + rim];
    };
    return { time: false, range };
  }
  function yScale(figure) {
    const levels = figure.levels.map(level => level.at);
    if (figure.y.log) {
      const base = figure.y.binary ? 2 : 10;
      // The lowest bar must have some height, too.
      const foot = figure.kind === "bars" ? 0.8 : 1;
      const range = (_, min, max) => {
        const all = [min, max, ...levels].filter(value => value != null && value > 0);
        if (!all.length) return [1, base];
        const low = Math.min(...all) * foot, high = Math.max(...all);
        if (base === 2 || high / low >= base) return uPlot.rangeLog(low, high, base, true);
        // A whole decade would squeeze the figure flat.
        const room = Math.max(1.02, (high / low) ** 0.08);
        return [low / room, high * room];
      };
      return { distr: 3, log: base, range };
    }
    const range = (_, min, max) => {
      const all = [0, min ?? 0, max ?? 0, ...levels];
      const low = Math.min(...all), high = Math.max(...all);
      const room = (high - low) * (figure.kind === "bars" ? 0.12 : 0.08);
      return low === high ? [0, 1] : [low < 0 ? low - room : 0, high > 0 ? high + room : 0];
    };
    return { range };
  }


  // Degrees by which long labels of the x axis lean, and pixels to the right of the figure.
  const LEAN = 40, PADDING = 18;
  function draw(figure, plot) {
    const visible = figure.series.map(() => true);
    const count = figure.data[0].length;
    const labelWidth = (u, texts) => {
      u.ctx.font = `${12 * uPlot.pxRatio}px ${FONT}`;
      return Math.max(0, ...texts.map(text => text ? u.ctx.measureText(text).width : 0)) / uPlot.pxRatio;
    };
    const cut = name => name.length > 18 ? name.slice(0, 17) + "…" : name;
    const longest = Math.max(0, ...(figure.names || []).map(name => cut(name).length));
    // Estimated from the width of a letter: the height depends on it before there is anything to measure.
    const leans = width => longest * 6.6 + 10 > (width - 60) / Math.max(1, count);
    const heightFor = width => (width < 520 ? 250 : 330) + (leans(width) ? 4 * longest : 0);
    const axis = {
      font: `12px ${FONT}`, stroke: () => colours.quiet, labelSize: 0,
      grid: { stroke: () => colours.grid, width: 1 }, ticks: { stroke: () => colours.grid, width: 1, size: 5 },
    };
    const xAxis = {
      ...axis, gap: 4, incrs: steps(figure.x), space: figure.x.clock || figure.x.log ? 70 : 55,
      values: (u, splits, _a, _s, step) => splits.map(value => tick(value, figure.x, step)),
      size: 30,
    };
    const logAxis = (scale, room) => {
      const base = scale.binary ? 2 : 10;
      return scale.log ? { splits: logSplits(base), filter: logLabels(base, room) } : {};
    };
    Object.assign(xAxis, logAxis(figure.x, 64));
    if (figure.names) Object.assign(xAxis, {
      splits: () => figure.names.map((_, i) => i),
      values: (u, splits) => splits.map(i => cut(figure.names[i] ?? "")),
      rotate: u => leans(u.width) ? LEAN : 0,
      size: (u, values) => values && leans(u.width) ? Math.ceil(labelWidth(u, values) * 0.65) + 26 : 30,
      grid: { show: false },
      ticks: { show: false },
    });
    // Labels that lean begin to the left of their bars, the first one also of the axis.
    const leftOfLabels = u => {
      if (!figure.names || !leans(u.width)) return 0;
      const axis = u.axes[1]._size, room = u.width - axis - PADDING;
      const wanted = figure.names.map((name, i) => {
        const part = (i + 0.5) / count;
        return (labelWidth(u, [cut(name)]) * Math.cos(LEAN * Math.PI / 180) + 4 - axis - room * part) / (1 - part);
      });
      return Math.ceil(Math.max(0, ...wanted));
    };
    const yAxis = {
      ...axis, gap: 5, incrs: steps(figure.y), space: figure.y.log ? 26 : 42,
      values: (u, splits, _a, _s, step) => splits.map(value => tick(value, figure.y, step)),
      size: (u, values) => Math.ceil(labelWidth(u, values || [])) + 14,
    };
    Object.assign(yAxis, logAxis(figure.y, 24));
    const lonely = (u, index, shown) => {
      if (shown) return null;
      const column = u.data[index], found = [];
      for (let i = 0; i < column.length; i++) if (column[i] != null && column[i - 1] == null && column[i + 1] == null) found.push(i);
      return found;
    };
    const series = figure.series.map(one => {
      const colour = () => colours["colour-" + one.colour];
      const style = {
        label: one.name, stroke: colour, width: count > 300 ? 1.25 : 2, dash: dashes(one), spanGaps: figure.kind === "curves",
        points: { show: false, size: 6, fill: colour, filter: lonely },
      };
      if (marked(figure)) style.points = {
        show: true, size: 9, width: 1.5, stroke: colour, fill: () => one.dashed ? colours.card : colour(),
        paths: (u, index, first, last) => {
          const path = new Path2D();
          for (let row = first; row <= last; row++) {
            const value = u.data[index][row];
            if (value != null) marker(path, one.colour % SHAPES, u.valToPos(u.data[0][row], "x", true), u.valToPos(value, "y", true), 4.2 * uPlot.pxRatio);
          }
          return { stroke: path, fill: path, clip: null, flags: 3 };
        },
      };
      if (figure.kind === "points") style.paths = () => null;
      if (figure.kind === "steps") Object.assign(style, { paths: uPlot.paths.stepped({ align: 1 }), fill: () => faint(colour(), 0.16) });
      if (figure.kind === "stacked") Object.assign(style, { width: 0, fill: () => faint(colour(), one.dashed ? 0.35 : 0.88) });
      if (figure.kind === "bars") Object.assign(style, {
        width: 1, paths: bars(figure, visible), points: { show: false, filter: () => null },
        fill: () => faint(colour(), one.dashed ? 0.18 : 0.85),
      });
      return style;
    });

    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    const column = document.createElement("div");
    column.className = "column";
    column.hidden = true;
    const stacked = dataOf(figure, visible);
    const names = Boolean(figure.names);
    const width = plot.clientWidth;
    const u = new uPlot({
      width, height: heightFor(width), padding: [10, figure.x.clock ? 26 : PADDING, 0, leftOfLabels], legend: { show: false },
      scales: { x: xScale(figure), y: yScale(figure) },
      axes: [xAxis, yAxis],
      series: [{}, ...series],
      bands: stacked.bands,
      cursor: {
        y: false, x: !names, points: { show: !filled(figure), size: 8 },
        drag: { x: !names, y: false, setScale: !names },
      },
      hooks: {
        setCursor: [u => show(u)],
        draw: [u => {
          const taken = [];
          if (figure.kind === "bars") barLabels(figure, visible, u, taken);
          drawMarks(figure, u, taken);
        }],
      },
    }, stacked.data, plot);
    u.under.append(column);
    plot.append(tip);

    function rowAt(u) {
      const left = u.cursor.left;
      if (left == null || left < 0 || !count) return null;
      const row = u.posToIdx(left);
      if (figure.kind !== "steps") return row;
      const begun = row > 0 && figure.data[0][row] > u.posToVal(left, "x") + 1e-9 ? row - 1 : row;
      return Math.min(begun, Math.max(0, count - 2));
    }
    // A single row of a thinned series means little: the two rows of its bucket give the range of its values.
    const pairs = figure.pairs && figure.kind !== "steps";
    const between = (one, other) => one === other ? one : `${one} to ${other}`;
    function valueOf(values, row) {
      const text = value => written(value, figure.y);
      if (!pairs) return text(values[row]);
      const [low, high] = [values[row & ~1], values[row | 1]].sort((a, b) => a - b);
      return low == null || high == null || low === high ? text(low ?? high) : `${written(low, { ...figure.y, suffix: "" })} to ${text(high)}`;
    }
    function placeOf(row) {
      if (names) return figure.names[row] ?? "";
      if (pairs) return between(written(figure.data[0][row & ~1], figure.x), written(figure.data[0][row | 1], figure.x));
      const place = written(figure.data[0][row], figure.x);
      return figure.kind === "steps" && row + 1 < count ? `${place} to ${written(figure.data[0][row + 1], figure.x)}` : place;
    }
    function read(row) {
      const read = figure.series.map((one, i) => ({ one, value: figure.data[i + 1][row], text: valueOf(figure.data[i + 1], row), shown: visible[i] }));
      const shown = read.filter(({ shown, value }) => shown && (value != null || figure.kind !== "curves"));
      return figure.kind === "stacked" ? shown.reverse() : shown;
    }
    function sum(row) {
      return figure.data.slice(1).reduce((sum, values, i) => sum + (visible[i] && values[row] || 0), 0);
    }
    function show(u) {
      const row = rowAt(u);
      tip.hidden = row == null;
      column.hidden = row == null || !names;
      if (row == null) return;
      tip.replaceChildren();
      const place = document.createElement("b");
      place.textContent = placeOf(row);
      const table = document.createElement("table");
      for (const { one, text } of read(row)) {
        const cells = table.insertRow();
        cells.insertCell().innerHTML = swatch(figure, one);
        cells.insertCell().textContent = one.name;
        cells.insertCell().textContent = text;
      }
      if (figure.kind === "stacked" && table.rows.length > 1) {
        const cells = table.insertRow();
        cells.className = "sum";
        cells.insertCell();
        cells.insertCell().textContent = "Together";
        cells.insertCell().textContent = written(sum(row), figure.y);
      }
      tip.append(place, table);
      // Measure its width where nothing limits it.
      tip.style.left = "0";
      const origin = u.over.offsetLeft, at = u.cursor.left + origin;
      const right = at + 16 + tip.offsetWidth <= plot.clientWidth;
      tip.style.left = `${right ? at + 16 : Math.max(0, at - 16 - tip.offsetWidth)}px`;
      if (names) {
        const left = u.valToPos(row - 0.5, "x"), end = u.valToPos(row + 0.5, "x");
        Object.assign(column.style, { left: `${left}px`, width: `${end - left}px` });
      }
    }

    const legend = plot.parentElement.querySelector(".legend");
    if (figure.series.length > 1 || figure.series.some(one => one.dashed)) figure.series.forEach((one, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.innerHTML = swatch(figure, one);
      button.append(one.name);
      button.addEventListener("click", () => {
        visible[i] = !visible[i];
        button.setAttribute("aria-pressed", String(visible[i]));
        u.batch(() => {
          u.setSeries(i + 1, { show: visible[i] });
          if (figure.kind === "stacked") {
            const { data, bands } = stack(figure, visible);
            u.delBand(null);
            bands.forEach(band => u.addBand(band));
            u.setData(data, false);
          }
        });
        u.redraw(true, true);
      });
      legend.append(button);
    });

    let row = null;
    plot.addEventListener("keydown", event => {
      const last = figure.kind === "steps" ? Math.max(0, count - 2) : count - 1;
      const leap = (pairs ? 2 : 1) * (event.shiftKey ? Math.max(1, Math.round(count / 40)) : 1);
      if (event.key === "ArrowRight") row = row == null ? 0 : Math.min(last, row + leap);
      else if (event.key === "ArrowLeft") row = row == null ? last : Math.max(0, row - leap);
      else if (event.key === "Home") row = 0;
      else if (event.key === "End") row = last;
      else if (event.key === "Escape") row = null;
      else return;
      event.preventDefault();
      if (!count) return;
      if (row == null) return u.setCursor({ left: -10, top: -10 });
      u.setCursor({ left: u.valToPos(figure.data[0][row], "x"), top: 1 });
      const values = read(row).map(({ one, text }) => `${one.name} ${text}`);
      plot.parentElement.querySelector(".spoken").textContent = `${placeOf(row)}: ${values.join(", ")}`;
    });
    plot.addEventListener("blur", () => u.setCursor({ left: -10, top: -10 }));

    const resize = width => {
      if (width <= 0 || width === u.width) return;
      u.setCursor({ left: -10, top: -10 });
      u.setSize({ width, height: heightFor(width) });
    };
    // Deferred: a figure that changes inside of the observer would trigger the observer again.
    new ResizeObserver(() => requestAnimationFrame(() => resize(plot.clientWidth))).observe(plot);
    drawn.push({ u, resize, plot });
  }

  // Saves all data that the page has of a figure, for other programs.
  function offer(figure, plot) {
    const tools = plot.parentElement.querySelector(".tools");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `Save ${fixed(figure.data[0].length, 0)} rows as CSV`;
    button.addEventListener("click", () => {
      const quoted = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      const unit = figure.y.suffix ? ` (${figure.y.suffix})` : "";
      const rows = figure.data[0].map((place, i) =>
        [figure.names ? figure.names[i] : String(place), ...figure.data.slice(1).map(column => column[i] ?? "")]);
      const head = [figure.x.clock ? "seconds" : figure.x.label, ...figure.series.map(one => one.name + unit)];
      const text = [head, ...rows].map(row => row.map(cell => quoted(String(cell))).join(",")).join("\n") + "\n";
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = `${figure.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "figure"}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    tools.append(button);
    tools.hidden = false;
  }

  function redraw() {
    readColours();
    drawn.forEach(({ u }) => u.redraw(true, true));
  }
  function setTheme(theme) {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    for (const button of document.querySelectorAll(".themes button"))
      button.setAttribute("aria-pressed", String(button.dataset.theme === theme));
  }
  // A page from a file may have no storage.
  let theme = "auto";
  try { theme = localStorage.getItem("memfit-theme") || "auto"; } catch { /* the theme is not stored then */ }
  document.querySelector(".themes").hidden = false;
  setTheme(theme);
  readColours();
  for (const button of document.querySelectorAll(".themes button")) button.addEventListener("click", () => {
    theme = button.dataset.theme;
    try { localStorage.setItem("memfit-theme", theme); } catch { /* as above */ }
    setTheme(theme);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  for (const plot of document.querySelectorAll(".plot")) {
    const figure = figures[Number(plot.dataset.figure)];
    try {
      draw(figure, plot);
      offer(figure, plot);
    } catch (error) {
      console.error(error);
      plot.classList.add("failed");
      plot.textContent = "This browser could not draw the figure; its numbers are below.";
      plot.parentElement.querySelector("details").open = true;
    }
  }

  // Print in the light theme and at the width of paper. Nobody can open a table on paper, so short ones are opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    setTheme("light");
    redraw();
    drawn.forEach(({ resize }) => resize(660));
    opened = [...document.querySelectorAll("details:not([open])")].filter(one => one.querySelectorAll("tr").length <= 30);
    opened.forEach(one => one.open = true);
  });
  addEventListener("afterprint", () => {
    setTheme(theme);
    redraw();
    drawn.forEach(({ resize, plot }) => resize(plot.clientWidth));
    opened.forEach(one => one.open = false);
  });
})();
