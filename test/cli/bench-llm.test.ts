// bench-llm: speeds of one library and of two in turns; what is refused.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { measureSpeeds } from '#lib/text/speed/measure-speed.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const file = dataPath('llm', 'stories260K', 'gguf', 'stories260K-q8_0.gguf')
const skip = noLanguageData

const bench = (...args: readonly string[]) =>
  spawnSync(process.execPath, ['--no-warnings', main, 'bench-llm', ...args], { encoding: 'utf8' })

t.test('speeds by depth and number of texts', { skip }, async t => {
  const options = ['--prompt', '9', '--generate', '3', '--depth', '0,20', '--batch', '1,3', '--runs', '1']
  const { status, stdout, stderr } = bench(file, ...options, '--json')
  t.equal(status, 0, stderr)
  const [{ name, loadMs, firstTokenMs, speeds }, ...others] = JSON.parse(stdout)
  t.same(others, [])
  t.match(name, /^dgx-spark \((cpu|js|cuda)\)$/)
  t.ok(firstTokenMs > loadMs)
  t.strictSame(
    speeds.map(({ kind, depth, batch }: Record<string, unknown>) => [kind, depth, batch]),
    [
      ['prefill', 0, 1],
      ['decode', 0, 1],
      ['decode', 0, 3],
      ['decode', 20, 1],
      ['decode', 20, 3],
    ],
  )
  for (const { slowest, median, fastest } of speeds)
    t.ok(slowest > 0 && slowest <= median && median <= fastest)
})

t.test('libraries take turns, run by run', async t => {
  const calls: string[] = []
  const contestant = (name: string) => ({
    vocabulary: 7,
    async generate(ids: Int32Array, count: number) {
      t.ok(ids.every(id => id >= 0 && id < 7))
      calls.push(`${name} ${ids.length} ${count}`)
      const now = performance.now()
      return Array.from({ length: count }, (_, i) => now + 10 * (i + 1))
    },
  })
  const options = { prompt: 5, generate: 4, depths: [3], batches: [2], runs: 2 }
  const rows = []
  for await (const row of measureSpeeds([contestant('a'), contestant('b')], options)) rows.push(row)
  t.strictSame(calls, [
    ...['a 8 2', 'b 8 2'],
    ...['a 5 1', 'b 5 1', 'a 5 1', 'b 5 1'],
    ...['a 3 4', 'a 3 4', 'b 3 4', 'b 3 4', 'a 3 4', 'a 3 4', 'b 3 4', 'b 3 4'],
  ])
  t.equal(rows.length, 2)
  for (const decode of rows[1]!) t.ok(decode.median > 150 && decode.median < 250, `${decode.median} tokens/s`)
})

t.test('what is refused', { skip }, async t => {
  t.match(bench(file, '--depth', '1.5'), { status: 2, stderr: /expected integers from 0 on/ })
  t.match(bench(file, '--runs', '0'), { status: 2, stderr: /--runs/ })
  t.match(bench('missing.gguf'), { status: 1, stderr: /missing\.gguf/ })
})
