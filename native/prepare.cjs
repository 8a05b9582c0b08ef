#!/usr/bin/env node
// prepare.cjs: npm's `prepare` for a git checkout. Compiles TypeScript; builds the addon where a compiler is found.
'use strict'
const { execFileSync } = require('node:child_process')
const { existsSync } = require('node:fs')
const path = require('node:path')

const root = path.join(__dirname, '..')
const run = (command, args) => execFileSync(command, args, { cwd: root, stdio: 'inherit' })

if (!existsSync(path.join(root, 'node_modules', 'typescript'))) process.exit(0)
run('npm', ['run', '--silent', 'build:ts'])
try {
  execFileSync('cmake', ['--version'], { stdio: 'ignore' })
} catch {
  console.warn(
    'dgx-spark: cmake not found; the addon was not built. ./quickstart.sh installs what is missing.',
  )
  process.exit(0)
}
run('node', ['native/build.cjs'])
