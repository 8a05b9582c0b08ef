// The parts of arrays that operations touch, as the copies to and from a device know them. Compiled and run here.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { noCompiler } from '../fixtures/fake-driver/fake-driver.js'

const root = path.resolve(import.meta.dirname, '../..')

t.test('footprints agree with a walk over their positions', { skip: noCompiler }, async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-footprint-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const program = path.join(folder, 'footprint')
  const flags = ['-std=c++20', '-O1', '-Wall', '-Wextra', '-Werror', '-Inative']
  const sources = ['test/fixtures/footprint.cc', 'native/core/footprint.cc']
  execFileSync('c++', [...flags, '-o', program, ...sources], { cwd: root, stdio: 'inherit' })
  const seed = Math.floor(Math.random() * 2 ** 31)
  t.equal(execFileSync(program, [String(seed)], { encoding: 'utf8' }), '3000 agree\n', `seed ${seed}`)
})
