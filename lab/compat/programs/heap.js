// Maps, arrays and typed arrays, changed and checked.
const count = Number(process.argv[2]);
let seed = 1, sum = 0;
const next = () => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0);
const map = new Map();
for (let i = 0; i < count; i++) map.set("key " + i, { number: next() % 1000, list: [i, i + 1, "text " + i] });
for (let i = 0; i < count; i++) {
  const value = map.get("key " + next() % count);
  sum = (sum * 31 + value.number + value.list[0]) % 1000000007;
  value.list = value.list.slice();
}
const numbers = new Float64Array(count * 4).map((_, i) => (i * 7919) % 1000003);
numbers.sort();
for (const n of numbers) sum = (sum * 31 + n) % 1000000007;
console.log(`${map.size} keys, ${sum}`);
