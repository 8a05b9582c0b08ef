// Which kernels the CUDA operations launch, and with what grids, on the stand-in driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const standIn = new StandIn(['cuda'])
t.teardown(() => standIn.dispose())

// 130 tokens, 101 out, 304 in, rank 5: 3, 2, 5 and 1 tiles of 64.
const head = `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const f32 = count => new Float32Array(count)
  const [T, O, I, R] = [130, 101, 304, 5]
  const shared = {
    tokens: T, rows: O, cols: I, rank: R, scale: 1, a: f32(R * I), b: f32(O * R),
    x: f32(T * I), y: f32(T * O), dy: f32(T * O), xa: f32(T * R), z: f32(T * O), bias: f32(O),
    weightNorm2: f32(O), magnitude: f32(O), norm: f32(O), gain: f32(O), out: f32(O), merged: f32(O * I),
    restored: f32(O * I), dx: f32(T * I), da: f32(R * I), db: f32(O * R), dmagnitude: f32(O), dbias: f32(O),
    dweight: f32(O * I), exactNorm: false,
    classes: O, logits: f32(T * O), labels: new Int32Array(T), loss: f32(1), dlogits: f32(T * O),
    adapters: [{ rank: R, scale: 1, a: f32(R * I), b: f32(O * R), gain: f32(O) }], index: new Int32Array(T),
    count: O * I, step: 1, lr: 1, beta1: 0.9, beta2: 0.9, eps: 1e-8, weightDecay: 0,
    grad: f32(O * I), param: f32(O * I), m: f32(O * I), v: f32(O * I),
  }
  const weights = {
    f32: { dtype: 'f32', data: f32(O * I) },
    f16: { dtype: 'f16', data: new Uint16Array(O * I) },
    bf16: { dtype: 'bf16', data: new Uint16Array(O * I) },
    f8_e4m3: { dtype: 'f8_e4m3', data: new Uint8Array(O * I), rowScale: f32(O) },
    nvfp4: { dtype: 'nvfp4', data: new Uint8Array(O * I / 2), blockScale: new Uint8Array(O * I / 16), tensorScale: 1 },
    i8: { dtype: 'i8', data: new Int8Array(O * I), rowScale: f32(O) },
  }
  const run = (op, dtype, changes) =>
    addon.runCuda(0, op, { ...shared, weight: { rows: O, cols: I, ...weights[dtype] }, ...changes })
  await addon.openDevice(0)
`

/** What an operation launches, as 'kernel blocks threads'. */
async function launches(call: string): Promise<string[]> {
  const { env, lines } = machine(standIn, { ...discrete, pointer: { alignment: 4 } })
  await scriptResult(`${head} await ${call}; console.log(null)`, env)
  return lines('launch').map(line => {
    const [, kernel, , x, y, z, , ...threads] = line.split(' ')
    t.same([y, z], [1, 1], 'grids have one dimension')
    return `${kernel} ${x} ${threads.slice(0, 2).join('x')}`
  })
}

const tiles = (kernel: string, rows: number, cols: number) => `${kernel} ${rows * cols} 256x1`
const [T, O, I, R] = [3, 2, 5, 1] // tiles
const columnSums = ['column_sums_f32 4 32x8', 'column_sums_finish_f32 1 256x1']
const elements = (kernel: string) => `${kernel} 120 256x1` // of [O, I]
const wideTiles = (kernel: string) => `${kernel} 4 256x1` // 32 x 512 of [O, I]
const factor = ['dora_factor_f32 5 256x1', 'column_sums_f32 1 32x8', 'column_sums_finish_f32 1 256x1']

for (const dtype of ['f32', 'f16', 'bf16', 'f8_e4m3', 'nvfp4', 'i8']) {
  const [rows, columns] = [`linear_${dtype}`, `linear_backward_${dtype}`]
  const expected: Record<string, string[]> = {
    [`run('linear', '${dtype}')`]: [tiles(rows, T, O)],
    [`run('linearBackward', '${dtype}')`]: [
      tiles(columns, T, I),
      tiles('linear_backward_f32', O, I),
      ...columnSums,
    ],
    [`run('weightNorm2', '${dtype}')`]: [`weight_norm2_${dtype} 101 256x1`],
    [`run('doraNorm', '${dtype}')`]: [
      ...factor,
      dtype === 'f32' || dtype === 'f16' ? tiles(rows, R, O) : `dora_cross_16_${dtype} 2 256x1`,
      `dora_norm_${dtype} 13 256x1`,
    ],
    [`run('doraForward', '${dtype}')`]: [tiles('linear_f32', T, R), tiles(rows, T, O)],
    [`run('doraForward', '${dtype}', { mask: f32(T * I) })`]: [
      tiles('linear_f32', T, R),
      tiles(rows, T, O),
      tiles(rows, T, O),
      tiles('linear_f32', T, O),
    ],
    [`run('doraMixed', '${dtype}')`]: [
      tiles(rows, T, O),
      'dora_mixed_down_f32 650 256x1', // 130 tokens, rank 5
      'dora_mixed_f32 52 256x1', // 130 x 101
    ],
    [`run('doraBackward', '${dtype}')`]: [
      tiles('linear_backward_f32', T, R),
      ...columnSums,
      ...columnSums,
      tiles('linear_backward_f32', O, R),
      tiles('linear_backward_f32', I, R),
      tiles(columns, T, I),
    ],
    [`run('doraBackward', '${dtype}', { exactNorm: true, mask: f32(T * I), dbias: undefined })`]: [
      tiles('linear_backward_f32', T, R),
      ...columnSums,
      tiles('linear_backward_f32', O, R),
      tiles('linear_backward_f32', I, R),
      'dora_backward_norm_f32 1 256x1',
      tiles('linear_f32', R, R),
      tiles(rows, R, O),
      tiles('linear_backward_f32', R, R),
      tiles(columns, R, I),
      tiles(columns, T, I),
      tiles(columns, T, I),
    ],
    [`run('doraMerge', '${dtype}')`]: [wideTiles(`dora_merge_${dtype}`)],
    [`run('linear', '${dtype}', { compute: 'bf16' })`]: [
      'pack_rows_bf16 21 256x1',
      `tensor_${dtype} 2 256x1`,
    ],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 16 })`]: [
      'pack_rows_bf16 3 256x1',
      `tensor_16_${dtype} 7 256x1`,
    ],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 8 })`]: [
      'pack_rows_bf16 2 256x1',
      `tensor_8_${dtype} 7 256x1`,
    ],
    [`run('linearBackward', '${dtype}', { compute: 'bf16', dbias: undefined })`]: [
      'pack_rows_bf16 9 256x1',
      `tensor_backward_${dtype} 6 256x1`,
      'pack_columns_bf16 20 32x8',
      'tensor_backward_f32 3 256x1',
    ],
    [`run('doraForward', '${dtype}', { compute: 'bf16' })`]: [
      'pack_rows_bf16 21 256x1',
      'pack_rows_bf16 1 256x1',
      'tensor_8_bf16 9 256x1',
      'pack_rows_bf16 3 256x1',
      'pack_rows_bf16 2 256x1',
      `tensor_${dtype} 2 256x1`,
    ],
  }
  t.test(dtype, async t => {
    t.same(await launches(Object.keys(expected).join('\nawait ')), Object.values(expected).flat())
  })
}

t.test('operations without a weight', async t => {
  t.same(await launches(`run('doraUnmerge', 'f32')`), [wideTiles('dora_unmerge_f32')])
  t.same(await launches(`run('adamw', 'f32')`), [elements('adamw_f32')])
  t.same(await launches(`run('softmaxCrossEntropy', 'f32')`), [
    'softmax_cross_entropy_f32 130 256x1',
    'softmax_cross_entropy_mean_f32 1 256x1',
  ])
})

t.test('no tokens', async t => {
  t.same(await launches(`run('linear', 'f32', { tokens: 0 })`), [])
  const zeroed = await launches(`run('linearBackward', 'f32', { tokens: 0 })`)
  t.same(zeroed, [tiles('linear_backward_f32', O, I), 'column_sums_finish_f32 1 256x1'])
})
