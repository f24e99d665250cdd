"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };

async function unpack(index) {
  const bytes = Uint8Array.from(atob($("block-" + index).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const TOKEN = /("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(#[^\n]*)|\b(def|class|return|import|from|as|if|elif|else|for|while|in|not|and|or|is|None|True|False|with|lambda|assert|raise|try|except|finally|pass|break|continue|del|global|yield)\b/g;
function highlighted(source) {
  const pre = make("pre"); let at = 0;
  for (const m of source.matchAll(TOKEN)) {
    pre.append(source.slice(at, m.index));
    pre.append(make("span", m[0], m[1] ? "s" : m[2] ? "c" : "k"));
    at = m.index + m[0].length;
  }
  pre.append(source.slice(at));
  return pre;
}

// Lines of b against a by longest common subsequence; long files fall back to b alone.
function difference(a, b) {
  const x = a.split("\n"), y = b.split("\n"), pre = make("pre");
  if (x.length * y.length > 4e6) return highlighted(b);
  const table = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--)
    table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  for (let i = 0, j = 0; i < x.length || j < y.length;) {
    if (i < x.length && j < y.length && x[i] === y[j]) { pre.append("  " + x[i] + "\n"); i++; j++; }
    else if (j < y.length && (i === x.length || table[i][j + 1] >= table[i + 1][j])) pre.append(make("span", "+ " + y[j++], "add"));
    else pre.append(make("span", "- " + x[i++], "del"));
  }
  return pre;
}

const ms = (v) => v >= 1 ? v.toFixed(3) + " ms" : (v * 1000).toFixed(1) + " µs";
function timingBar(measured, most) {
  const q = measured.quantiles_ms || [];
  const box = make("div", undefined, "span");
  if (q.length < 7) return box;
  const mark = (tag, low, high, cls) => { const e = make(tag, undefined, cls); e.style.left = 100 * low / most + "%"; if (high !== undefined) e.style.width = Math.max(0.3, 100 * (high - low) / most) + "%"; box.append(e); };
  mark("i", q[1], q[5]); mark("i", q[2], q[4], "mid"); mark("b", q[3]);
  box.title = "5 % " + ms(q[1]) + ", median " + ms(q[3]) + ", 95 % " + ms(q[5]);
  return box;
}

function showTiming(body, t, floor) {
  body.append(make("h3", "Time on " + t.device));
  const rows = [["candidate", t.candidate], ...Object.entries(t.baselines)];
  const most = Math.max(...rows.map(([, m]) => (m.quantiles_ms || [])[5] || m.high_ms)) * 1.05;
  for (const [name, m] of rows) {
    const ratio = t.speedups[name];
    const faster = ratio ? `; candidate is ${ratio.value.toFixed(2)}x [${ratio.low.toFixed(2)}, ${ratio.high.toFixed(2)}]${ratio.tie ? ", a tie" : ""}` : "";
    body.append(make("div", `${name}: ${ms(m.median_ms)} [${ms(m.low_ms)}, ${ms(m.high_ms)}], ${m.runs} runs${faster}`));
    body.append(timingBar(m, most));
  }
  if (floor) body.append(make("p", `Floor ${ms(floor)}` + (t.floor_percent ? `, ${t.floor_percent.toFixed(0)} % reached` : "") + (t.sol_score ? `, SOL score ${t.sol_score.toFixed(2)}` : ""), "hint"));
}

function showKernels(body, kernels) {
  if (!kernels.length) return;
  const table = make("table"), head = make("tr");
  for (const h of ["kernel", "launches", "registers", "shared bytes", "spills"]) head.append(make("th", h));
  table.append(head);
  for (const k of kernels) { const row = make("tr"); for (const v of [k.name, k.launches, k.registers, k.shared_bytes, k.spills]) row.append(make("td", v ?? "-")); table.append(row); }
  const box = make("div", undefined, "scroll"); box.append(table); body.append(box);
}

async function copy(button, words) {
  try { await navigator.clipboard.writeText(words); }
  catch {  // no clipboard for pages that are files, in some browsers
    const area = make("textarea", words); $("detail").append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// A text under its title, to unfold and to copy.
function text(title, words, unfolded, shown) {
  const d = make("details", undefined, "text"), s = make("summary", title + " "), b = make("button", "Copy", "copy");
  b.type = "button"; b.title = "Copy to the clipboard";
  b.addEventListener("click", (e) => { e.preventDefault(); copy(b, words); });
  s.append(b); d.append(s, (shown || ((t) => make("pre", t)))(words)); d.open = Boolean(unfolded);
  return d;
}

function fill(box, a, bySource, prompt) {
  box.append(make("p", a.message));
  for (const f of a.findings) box.append(make("p", f, "hint"));
  const facts = [...a.facts];
  for (const [k, v] of Object.entries(a.cost)) facts.push(`${k} ${typeof v === "number" ? +v.toPrecision(3) : v}`);
  if (facts.length) box.append(make("p", facts.join("; "), "hint"));
  if (a.wrong.length) { const ul = make("ul"); for (const text of a.wrong.slice(0, 8)) ul.append(make("li", text)); box.append(ul); }
  if (a.timing) showTiming(box, a.timing, a.floor_ms);
  showKernels(box, a.kernels);
  const parent = a.parents.map((p) => bySource[p]).find(Boolean);
  if (parent) { const d = make("details"); d.append(make("summary", "Difference to its parent"), difference(parent, a.source)); box.append(d); }
  if (a.source) box.append(text("Source", a.source, true, highlighted));
  if (a.answer) box.append(text("Answer", a.answer));
  if (prompt) box.append(text("Prompt", prompt));
}

// The part of the address that names a problem, or one attempt at it: it holds in every report that has them.
const place = (problem, run, a) => "#" + new URLSearchParams({ problem, ...(a ? { run, attempt: `${a.round}.${a.sample}` } : {}) });

async function open(name, run, attempt) {
  const button = [...document.querySelectorAll("button[data-block]")].find((b) => b.textContent === name);
  if (!button) return;
  const data = await unpack(button.dataset.block), body = $("detail-body"), bySource = {};
  let asked;
  $("detail-title").textContent = data.problem;
  body.replaceChildren();
  if (data.reference) body.append(text("Reference", data.reference, false, highlighted));
  for (const run of data.runs) for (const a of run.attempts) bySource[a.digest] = a.source;
  for (const one of data.runs) {
    body.append(make("h3", one.name));
    if (!one.attempts.length) body.append(make("p", "not run", "hint"));
    for (const a of one.attempts) {
      const d = make("details"), s = make("summary"), link = make("a", "link", "link");
      s.append(make("span", undefined, "dot " + a.status), `sample ${a.sample}${a.round ? ", round " + a.round : ""}: ${a.status}`);
      if (a.timing) s.append(`, ${ms(a.timing.candidate.median_ms)}`);
      link.href = place(data.problem, one.name, a); link.title = "Address of this attempt";
      s.append(" ", link); d.append(s);
      d.addEventListener("toggle", () => { if (d.open && d.children.length === 1) { const box = make("div"); fill(box, a, bySource, data.prompts[a.prompt]); d.append(box); } });
      body.append(d);
      if (one.name === run && `${a.round}.${a.sample}` === attempt) { d.open = true; asked = d; }
    }
  }
  if (!$("detail").open) $("detail").showModal();
  history.replaceState(null, "", asked ? location.hash : place(data.problem));
  if (asked) asked.scrollIntoView();
}

function openAsked() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("problem")) open(asked.get("problem"), asked.get("run"), asked.get("attempt"));
}

for (const b of document.querySelectorAll("button[data-block]")) b.addEventListener("click", () => open(b.textContent));
$("close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
$("filter").addEventListener("input", () => {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean); let shown = 0;
  for (const row of document.querySelectorAll(".heat tbody tr")) { row.hidden = !words.every((w) => row.dataset.name.includes(w)); shown += !row.hidden; }
  $("count").textContent = words.length ? `${shown} shown` : "";
});
window.addEventListener("hashchange", openAsked);
openAsked();
