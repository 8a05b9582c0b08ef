#!/usr/bin/env node
// declarations.cjs: types for CommonJS. TypeScript with "module": "node16" refuses to require() what a .d.ts of an ES module
// describes, so each one that a .cjs entry leads to gets a copy as .d.cts, whose imports lead to copies.
'use strict'
const fs = require('node:fs')
const path = require('node:path')

const dist = path.join(__dirname, '..', 'dist')
const specifier = /((?:from|import|module)\s*\(?\s*)(['"])(\.{1,2}\/[^'"]+)\.js\2/g

/** Copies a declaration file and those that it imports; returns nothing that has been copied before. */
function copy(file, done) {
  if (done.has(file)) return
  done.add(file)
  const text = fs.readFileSync(file, 'utf8')
  const imported = [...text.matchAll(specifier)].map(([, , , name]) =>
    path.resolve(path.dirname(file), `${name}.d.ts`),
  )
  fs.writeFileSync(file.replace(/\.d\.ts$/, '.d.cts'), text.replace(specifier, '$1$2$3.cjs$2'))
  for (const next of imported) copy(next, done)
}

const done = new Set()
for (const entry of ['index.d.ts', 'kernels/index.d.ts', 'cluster/index.d.ts'])
  copy(path.join(dist, entry), done)
