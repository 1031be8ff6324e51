// Records as JavaScript objects. See ../turns.py.
const N = Number(process.argv[2]), M = 2147483647;
const hex = (x) => x.toString(16).padStart(8, "0");
const first = (i) => hex((((i * 48271 + 11) % M) * 16807) % M);

function text(i) {
  let x = (i * 48271 + 11) % M;
  const out = [];
  for (let j = 0; j < 64; j++) {
    x = (x * 16807) % M;
    out.push(hex(x), "-field-", String(j).padStart(2, "0"), ";");
  }
  return out.join("") + out[0];
}

function fail(why) {
  console.error(`MISMATCH: ${why}`);
  process.exit(1);
}

function touch(hot, turn) {
  for (let i = 0; i < N; i++) {
    const block = Math.floor(i / 32);
    if (hot !== (block * 7919) % 1000 < 400 || (!hot && block % 10 !== turn % 10)) continue;
    const record = records[i];
    if (!record.text.startsWith(first(i)) || !record.text.endsWith(first(i))) fail(`record ${i}`);
    if (i % 4 === 0) {
      record.count++;
      total++;
    }
  }
}

let total = 0;
const records = [];
for (let i = 0; i < N; i++) records.push({ text: text(i), count: 0 });
console.log("k");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const [what, turn] = line.split(" ");
  if (what === "q") {
    if (records.some((r, i) => r.text !== text(i)) || records.reduce((s, r) => s + r.count, 0) !== total) fail("at the end");
    process.exit(0);
  }
  touch(what === "r", Number(turn));
  console.log(what);
});
