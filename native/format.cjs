#!/usr/bin/env node
// format.cjs: clang-format over native/, `--check` for lint and `--write` for format.
'use strict'
const { execFileSync } = require('node:child_process')
const { readdirSync } = require('node:fs')
const path = require('node:path')

const root = path.join(__dirname, '..')
const files = ['native', 'test/fixtures'].flatMap(dir =>
  readdirSync(path.join(root, dir), { recursive: true })
    .filter(name => /\.(cc|h|cu|cuh|c)$/.test(name))
    .map(name => path.join(dir, name)),
)
const mode = process.argv.includes('--write') ? ['-i'] : ['--dry-run', '--Werror']
try {
  execFileSync('clang-format', [...mode, ...files], { cwd: root, stdio: 'inherit' })
} catch (error) {
  if (error.code === 'ENOENT') console.error('clang-format not found: apt-get install clang-format')
  process.exit(1)
}
