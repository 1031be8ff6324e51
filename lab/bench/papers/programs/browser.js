// browser.js HOG MIB VARIANT: several pages are open (objects from JSON, and images), idle; then another program allocates
// memory. At the end the pages are looked at again.
'use strict';
const { spawnSync } = require('child_process');
const crypto = require('crypto');

function noise(seed, length) {
    const parts = [];
    for (let n = 0; n * 32 < length; n++) parts.push(crypto.createHash('sha256').update(`${seed} ${n}`).digest());
    return Buffer.concat(parts).subarray(0, length);
}

function page(n) {
    const items = [];
    for (let i = 0; i < 1500; i++) {
        const title = `Item ${i} of page ${n}`;
        items.push({ id: n * 10000 + i, kind: 'article', title, read: i % 3 === 0, tags: ['news', `t${i % 17}`] });
    }
    return { tree: JSON.parse(JSON.stringify(items)), image: noise(n, 300 << 10) };
}

function digest(pages) {
    const hash = crypto.createHash('sha256');
    for (const p of pages) hash.update(JSON.stringify(p.tree)).update(p.image);
    return hash.digest('hex');
}

const pages = [];
for (let n = 0; n < 8; n++) pages.push(page(n));
const before = digest(pages);
const [hog, mib, variant] = process.argv.slice(2);
const done = spawnSync(hog, [mib, variant], { stdio: 'inherit' });
if (done.status !== 0) process.exit(done.status || 1);
if (digest(pages) !== before) {
    console.error('MISMATCH pages');
    process.exit(1);
}
