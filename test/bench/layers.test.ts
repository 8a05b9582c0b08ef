// bench/layers.js: kinds of layers of the nets of the zoo.
import { execFileSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'

const script = path.resolve(import.meta.dirname, '../../bench/layers.js')
const env = { ...process.env, NODE_OPTIONS: '', DGX_SPARK_THREADS: '1' }

t.test('every step of a net is of one kind', async t => {
  const printed = execFileSync(process.execPath, [script, 'mobilenet-v2 1x96'], { encoding: 'utf8', env })
  t.match(printed, /^threads: 1, GEMM of 1024 x 1024 x 1024: \d+ GFLOP\/s\n/)
  const steps = Number(printed.match(/^mobilenet-v2 1x96x160: [\d.]+ ms in (\d+) steps$/m)?.[1])
  const rows = [...printed.matchAll(/^│ (\S.*?) +│ +(\d+) │ +[\d.]+ │ +([\d.]+) % │ +(\d*) │/gm)]
  t.equal(
    rows.reduce((sum, [, , count]) => sum + Number(count), 0),
    steps,
  )
  const kinds = new Map(rows.map(([, kind, , , rate]) => [kind, Number(rate)]))
  for (const kind of ['first layer', '1 x 1', 'depthwise', '1 x 1, small image, channels last', 'linear'])
    t.ok((kinds.get(kind) ?? 0) > 0, `${kind} has a rate`)
  t.equal(kinds.get('reduce'), 0, 'means have none')
})
