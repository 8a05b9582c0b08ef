// Products that cuBLASLt may form: what it is asked for, and when, on the stand-in libraries.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const standIn = new StandIn(['cuda', 'cublaslt'])
t.teardown(() => standIn.dispose())

// 130 tokens, 104 out, 304 in: rows of x are padded to 320.
const script = `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const f32 = count => new Float32Array(count)
  const [T, O, I] = [130, 104, 304]
  const args = {
    weight: { dtype: 'bf16', rows: O, cols: I, data: new Uint16Array(O * I) }, compute: 'bf16',
    tokens: T, x: f32(T * I), y: f32(T * O), dy: f32(T * O), dx: f32(T * I),
  }
  await addon.openDevice(0)
  const runs = JSON.parse(process.env.RUNS)
  for (const [op, changes] of runs) await addon.runCuda(0, op, { ...args, ...changes })
  console.log(null)
`

/** The products of `runs`, by kernel or library. */
async function products(runs: [op: string, changes: object][], profile: object = {}, env: object = {}) {
  const played = machine(standIn, { ...discrete, ...profile })
  await scriptResult(script, { ...played.env, RUNS: JSON.stringify(runs), ...env })
  return played
    .lines('')
    .filter(line => /^(matmul|launch tensor)/.test(line))
    .map(line => line.replace(/^launch (\w+) .*/, '$1'))
}

const six = (changes: object) => Array.from({ length: 6 }, (): [string, object] => ['linear', changes])
const ours = 'tensor_bf16'
const rows = 'matmul 104 130 304 trans 1 lda 304 ldb 320 ldd 104 workspace 0'

t.test('the faster way is kept: a kernel takes 2 ms, cuBLASLt no time', async t => {
  t.same(await products(six({}), { stream: { delay: 2 } }), [ours, ours, rows, rows, rows, rows])
})

t.test('a layer with an activation is finished in one pass', async t => {
  const expected = [ours, ours, rows, 'tensor_finish', rows, 'tensor_finish']
  const calls = six({ activation: 'relu' })
  t.same((await products(calls, { stream: { delay: 2 } })).slice(0, 6), expected)
})

t.test('columns of the weight', async t => {
  const calls = six({}).map((): [string, object] => ['linearBackward', {}])
  const columns = 'matmul 304 130 104 trans 0 lda 304 ldb 128 ldd 304 workspace 0'
  const found = await products(calls, { stream: { delay: 2 } })
  t.same(found, ['tensor_backward_bf16', 'tensor_backward_bf16', columns, columns, columns, columns])
})

t.test('a workspace', async t => {
  const found = await products(six({}).slice(3), { cublaslt: { workspace: 4096 } })
  t.same(found[2], rows.replace(/0$/, '4096'))
})

t.test('our kernel where cuBLASLt cannot', async t => {
  const always = Array.from({ length: 6 }, () => ours)
  t.same(await products(six({}), { cublaslt: { create: 1 } }), always, 'no handle')
  t.same(await products(six({}), { cublaslt: { heuristic: 15 } }), always, 'no algorithm')
  t.same(await products(six({}), { cublaslt: { workspace: 1e9 } }), always, 'a workspace too large')
  t.same(await products(six({}), {}, { DGX_SPARK_CUBLASLT: '0' }), always, 'turned off')
})
