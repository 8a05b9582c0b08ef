// Scripts of developers say in a line what is wrong with how they are called.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../..')
const cases: readonly (readonly [script: string, args: readonly string[], message: RegExp])[] = [
  ['bench/main.js', ['--json'], /^Option '--json <value>' argument missing\n$/],
  ['bench/main.js', ['--nonsense'], /^Unknown option '--nonsense'/],
  ['bench/layers.js', ['--net'], /^Unknown option '--net'/],
  ['bench/layers.js', ['no such net'], /^no net of the zoo has 'no such net'/],
  ['test/fixtures/conformance/main.js', ['/nowhere'], /^\/nowhere: no such file or folder\n$/],
  ['test/fixtures/conformance/main.js', ['--case'], /^Option '--case <value>' argument missing/],
  ['test/fixtures/conformance/main.js', [], /^usage: /],
  ['test/fixtures/gpu-suite/pack.js', ['--with'], /^Option '--with <value>' argument missing/],
]

for (const [script, args, message] of cases) {
  t.test(`${script} ${args.join(' ')}`, async t => {
    const { status, stderr } = spawnSync(process.execPath, [path.join(root, script), ...args], {
      encoding: 'utf8',
      env: { ...process.env, NODE_OPTIONS: '' },
    })
    t.equal(status, 2)
    t.match(stderr, message)
    t.notMatch(stderr, /\n {4}at /)
  })
}
