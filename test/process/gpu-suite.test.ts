// The GPU suite itself, where there is no GPU: it skips with a reason, and on a driver whose kernels do nothing it fails.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { runScript } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

const node = (args: string[], env: Record<string, string> = {}) =>
  spawnSync(process.execPath, args, { encoding: 'utf8', env: { ...process.env, ...env }, timeout: 240_000 })

t.test('the printer of TAP', async t => {
  const { code, stdout } = await runScript(`
    import { runTests } from './test/fixtures/gpu-suite/tap.js'
    await runTests({
      'holds # and': t => { t.ok(true, 'one'); t.same({ a: [1] }, { a: [1] }, 'two'); t.close([1.01], [1], 0.1, 'three') },
      fails: t => { t.same(1, 2, 'same'); t.close([1, NaN], [1, 2], 1, 'close'); t.close([], [1], 1, 'short'); t.skip('x', 'a\\nb') },
      throws: async () => { throw new Error('oh') },
    }, false)`)
  t.equal(code, 1)
  t.strictSame(
    stdout.split('\n').filter(line => /^(ok|not ok|1\.\.)/.test(line)),
    [
      'ok 1 - holds  and: one',
      'ok 2 - holds  and: two',
      'ok 3 - holds  and: three',
      'not ok 4 - fails: same',
      'not ok 5 - fails: close',
      'not ok 6 - fails: short',
      'ok 7 - fails: x # SKIP a b',
      'not ok 8 - throws: ends without an error',
      '1..8',
    ],
  )
  t.match(stdout, /found: "1 should be 2"/)
  t.match(stdout, /found: "Error: oh/)
})

t.test('without the addon every test says why it is skipped', t => {
  const { status, stdout } = node(['test/gpu/memory.test.js'], { DGX_SPARK_BUILD: 'none' })
  t.equal(status, 0)
  t.match(stdout, /^ok 1 - managed memory # SKIP the addon does not load: .*\n/m)
  t.notMatch(stdout, /not ok/)
  t.end()
})

t.test('kernels that do nothing are found out', { skip: noCudaCalls }, t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { env } = machine(fakeDriver, discrete)
  const { status, stdout } = node(['test/gpu/kernels.test.js'], { ...env, DGX_SPARK_GPU_SIZES: 'small' })
  t.equal(status, 1)
  const lines = stdout.split('\n')
  const failed = lines.filter(line => line.startsWith('not ok'))
  const passed = lines.filter(line => line.startsWith('ok') && !line.includes('# SKIP'))
  t.ok(failed.length > 200, `${failed.length} cases fail`)
  t.strictSame(passed, [], 'no case passes by doing nothing')
  for (const file of ['concurrency', 'dora-linear', 'errors', 'memory', 'plan', 'training']) {
    t.equal(node([`test/gpu/${file}.test.js`], machine(fakeDriver, integrated).env).status, 1, file)
  }
  t.end()
})

t.test('a GPU that cannot be opened is a failure, not a reason to skip', { skip: noCudaCalls }, t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { env } = machine(fakeDriver, { ...discrete, fail: { cuDevicePrimaryCtxRetain: 999 } })
  const { status, stdout } = node(['test/gpu/concurrency.test.js'], env)
  t.equal(status, 1)
  t.match(stdout, /not ok 1 - 200 calls in flight: ends without an error/)
  t.end()
})

t.test('the bench times nothing that is wrong', { skip: noCudaCalls }, t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { env } = machine(fakeDriver, discrete)
  const { status, stderr, stdout } = node(['bench/main.js', '--device', 'cuda'], env)
  t.equal(status, 1)
  t.match(stderr, /the copy of the device limit is wrong/)
  t.notMatch(stdout, /GB\/s/)
  t.end()
})

t.test('rows of models are replayed on memory that stays', { skip: noCudaCalls }, t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, discrete)
  const { status, stdout, stderr } = node(['test/fixtures/bound-row-child.js'], env)
  t.equal(status, 0, stderr)
  t.match(stdout, /driving_policy: output outputs: relative error/, 'kernels that do nothing are found out')
  t.match(lines('instantiate'), [/^instantiate \d+ kernels 0 copies$/])
  t.equal(lines('replay').length, 4, 'of five runs the first is enqueued')
  t.end()
})

t.test('the runner', t => {
  const out = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gpu-'))
  t.teardown(() => rmSync(out, { recursive: true }))
  const run = (stages: string[], env = {}) =>
    node(['test/fixtures/gpu-suite/run.js', ...stages], { OUT: out, DGX_SPARK_ENABLED: '1', ...env })
  const unknown = run(['benches'])
  t.equal(unknown.status, 2)
  t.match(unknown.stderr, /unknown: benches; the stages are environment, tests, sanitizer, bench, models/)
  const { status, stdout } = run(['environment'])
  t.equal(status, 0)
  t.match(stdout, /== environment\n.*native addon.*== done after [\d.]+ s\n\nresults: /s)
  t.match(readFileSync(path.join(out, 'environment.txt'), 'utf8'), /CUDA driver/)
  t.end()
})
