// browser.js HOG MIB VARIANT: several pages are open (objects from JSON, and images), idle; then another program allocates
// memory. At the end the pages are looked at again. With "media" the images are 2.5 MiB a page and compress a little: of 64 bytes 54
// are random.
'use strict';
const { spawnSync } = require('child_process');
const crypto = require('crypto');

function noise(seed, length) {
    const parts = [];
    for (let n = 0; n * 32 < length; n++) parts.push(crypto.createHash('sha256').update(`${seed} ${n}`).digest());
    return Buffer.concat(parts).subarray(0, length);
}

function image(n, media) {
    if (!media) return noise(n, 300 << 10);
    const bytes = noise(n, 2560 << 10);
    for (let block = 0; block < bytes.length; block += 64) bytes.fill(0, block + 54, block + 64);
    return bytes;
}

function page(n, media) {
    const items = [];
    for (let i = 0; i < 1500; i++) {
        const title = `Item ${i} of page ${n}`;
        items.push({ id: n * 10000 + i, kind: 'article', title, read: i % 3 === 0, tags: ['news', `t${i % 17}`] });
    }
    return { tree: JSON.parse(JSON.stringify(items)), image: image(n, media) };
}

function digest(pages) {
    const hash = crypto.createHash('sha256');
    for (const p of pages) hash.update(JSON.stringify(p.tree)).update(p.image);
    return hash.digest('hex');
}

const [hog, mib, variant] = process.argv.slice(2);
const pages = [];
for (let n = 0; n < 8; n++) pages.push(page(n, variant === 'media'));
const before = digest(pages);
const done = spawnSync(hog, [mib, variant === 'word' ? 'word' : 'mix'], { stdio: 'inherit' });
if (done.status !== 0) process.exit(done.status || 1);
if (digest(pages) !== before) {
    console.error('MISMATCH pages');
    process.exit(1);
}
