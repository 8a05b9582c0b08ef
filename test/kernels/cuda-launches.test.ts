// Which kernels the CUDA operations launch, and with what grids, on the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { launchesOf } from '../fixtures/fake-driver/launches.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

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
    step: 1, lr: 1, beta1: 0.9, beta2: 0.9, eps: 1e-8, weightDecay: 0,
    tensors: [O * I, 0, 1].map(count => (
      { count, grad: f32(count), param: f32(count), m: f32(count), v: f32(count) }
    )),
  }
  const weights = {
    f32: { format: 'f32', data: f32(O * I) },
    f16: { format: 'f16', data: new Uint16Array(O * I) },
    bf16: { format: 'bf16', data: new Uint16Array(O * I) },
    f8_e4m3: { format: 'f8_e4m3', data: new Uint8Array(O * I), rowScale: f32(O) },
    nvfp4: { format: 'nvfp4', data: new Uint8Array(O * I / 2), blockScale: new Uint8Array(O * I / 16), tensorScale: 1 },
    i8: { format: 'i8', data: new Int8Array(O * I), rowScale: f32(O) },
  }
  const run = (op, dtype, changes) =>
    addon.runCuda(0, op, { ...shared, weight: { rows: O, cols: I, ...weights[dtype] }, ...changes })
  await addon.openDevice(0)
`

/** What an operation launches, as 'kernel blocks threads'. */
const launches = (call: string) =>
  launchesOf(fakeDriver, { ...discrete, pointer: { alignment: 4 } }, `${head} await ${call}`)

const tiles = (kernel: string, rows: number, cols: number) => `${kernel} ${rows * cols} 256x1`
const [T, O, I, R] = [3, 2, 5, 1] // tiles
const columnSums = ['column_sums_f32 4 32x8', 'column_sums_finish_f32 1 256x1']
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
      `linear_mma_64_${dtype} 6 256x1`,
    ],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 32 })`]: [
      'pack_rows_bf16 5 256x1',
      `linear_mma_32_${dtype} 2 256x1`,
    ],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 257, x: f32(257 * I), y: f32(257 * O) })`]: [
      'pack_rows_bf16 41 256x1',
      `linear_mma_${dtype} 3 256x1`,
    ],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 16 })`]: [`linear_mma_16_${dtype} 7 512x1`],
    [`run('linear', '${dtype}', { compute: 'bf16', tokens: 8 })`]: [`linear_mma_8_${dtype} 7 512x1`],
    [`run('linearBackward', '${dtype}', { compute: 'bf16', dbias: undefined })`]: [
      'pack_rows_bf16 9 256x1',
      `linear_mma_backward_${dtype} 6 256x1`,
      'pack_columns_bf16 20 32x8',
      'linear_mma_backward_f32 3 256x1',
    ],
    [`run('doraForward', '${dtype}', { compute: 'bf16' })`]: [
      'pack_rows_bf16 21 256x1',
      'pack_rows_bf16 1 256x1',
      'linear_mma_8_bf16 9 512x1',
      'pack_rows_bf16 3 256x1',
      'pack_rows_bf16 2 256x1',
      `linear_mma_64_${dtype} 6 256x1`,
      'product_epilogue 9 256x1',
    ],
  }
  if (dtype === 'f16' || dtype === 'f32') {
    expected[`run('linear', '${dtype}', { compute: 'f16' })`] = [
      'pack_rows_f16 21 256x1',
      `linear_mma_half_64_${dtype} 6 256x1`,
    ]
    expected[`run('linear', '${dtype}', { compute: 'f16', tokens: 16 })`] = [
      `linear_mma_half_16_${dtype} 7 512x1`,
    ]
    expected[`run('linearBackward', '${dtype}', { compute: 'f16', dbias: undefined, dweight: undefined })`] =
      ['pack_rows_f16 9 256x1', `linear_mma_half_backward_${dtype} 6 256x1`]
  }
  t.test(dtype, async t => {
    t.same(await launches(Object.keys(expected).join('\nawait ')), Object.values(expected).flat())
  })
}

t.test('stripes of K fill a GPU, by the sizes of the weight alone', async t => {
  const shapes = [
    [4096, 4096],
    [1024, 4096],
    [14_336, 4096],
    [4096, 14_336],
    [4096, 1023],
    [4096, 1024],
  ]
  const script = `Promise.resolve()
    for (const [rows, cols] of ${JSON.stringify(shapes)}) {
      const weight = { format: 'f8_e4m3', rows, cols, data: new Uint8Array(rows * cols), rowScale: f32(rows) }
      for (const tokens of [32, 64, 128, 256]) {
        const [x, y] = [f32(tokens * cols), f32(tokens * rows)]
        await addon.runCuda(0, 'linear', { weight, tokens, x, y, compute: 'bf16' })
      }
    }`
  const found = await launches(script)
  const blocks = (pattern: RegExp) => found.flatMap(line => line.match(pattern)?.[1] ?? [])
  t.same(blocks(/^linear_mma_32_f8_e4m3 (\d+) 256x1$/), [192, 128, 224, 192, 64, 128])
  const tall = [192, 384, 768, 128, 256, 512, 224, 448, 896, 192, 384, 768, 64, 128, 256, 128, 256, 512]
  t.same(blocks(/^linear_mma_64_f8_e4m3 (\d+) 256x1$/), tall)
  const sums = [64, 128, 256, 512, 16, 32, 64, 128, 64, 128, 256, 512, 64, 128, 256, 512]
  t.same(blocks(/^product_epilogue (\d+) 256x1$/), sums, 'where there is more than one stripe')
})

t.test('operations without a weight', async t => {
  t.same(await launches(`run('doraUnmerge', 'f32')`), [wideTiles('dora_unmerge_f32')])
  t.same(await launches(`run('adamw', 'f32')`), ['adamw_step 1 1x1', 'adamw_f32 121 256x1'])
  t.same(await launches(`run('softmaxCrossEntropy', 'f32')`), [
    'softmax_cross_entropy_f32 130 256x1',
    'softmax_cross_entropy_mean_f32 1 256x1',
  ])
})

t.test('products of bytes take tiles of 128 where they fill the processors', async t => {
  const product = (tokens: number, rows: number, cols: number, xSigned: boolean, wSigned: boolean) => {
    const bytes = (signed: boolean, count: number) => `new ${signed ? 'Int8Array' : 'Uint8Array'}(${count})`
    return `run('linearInteger', 'f32', { tokens: ${tokens}, rows: ${rows}, cols: ${cols}, xSigned: ${xSigned},
      wSigned: ${wSigned}, x: ${bytes(xSigned, tokens * cols)}, w: ${bytes(wSigned, rows * cols)},
      y: new Int32Array(${tokens * rows}), bias: undefined, scale: undefined })`
  }
  t.same(await launches(product(1, 100, 33, false, true)), ['linear_integer_mma_8_u8_i8 7 512x1'])
  t.same(await launches(product(16, 2050, 33, true, true)), ['linear_integer_mma_16_i8_i8 129 256x1'])
  t.same(await launches(product(17, 130, 33, false, false)), ['linear_integer_mma_64_u8_u8 3 128x1'])
  t.same(await launches(product(1000, 1500, 16, true, false)), ['linear_integer_mma_128_i8_u8 96 256x1'])
  t.same(await launches(product(1000, 1400, 16, true, false)), ['linear_integer_mma_64_i8_u8 352 128x1'])
})

t.test('products of two activations', async t => {
  const [outer, inner, m, n, k] = [2, 3, 65, 40, 33]
  const [ofA, ofB] = [outer * inner * m * k, outer * inner * n * k]
  const product = (compute: string, a: number[], b: number[], size = [m, n, k]) =>
    `run('matmul', 'f32', { outer: ${outer}, inner: ${inner}, m: ${size[0]}, n: ${size[1]}, k: ${size[2]}, alpha: 1,
      a: f32(${ofA}), aStrides: [0, ${m * k}, ${a}], b: f32(${ofB}), bStrides: [0, ${n * k}, ${b}],
      y: f32(${outer * inner * m * n}), yStrides: [${inner * m * n}, ${m * n}, ${n}, 1], compute: '${compute}' })`
  t.same(await launches(product('f32', [k, 1], [n, 1])), ['matmul_f32 12 256x1'])
  t.same(await launches(product('bf16', [k, 1], [n, 1])), ['matmul_nn_bf16 12 128x1'])
  t.same(await launches(product('bf16', [k, 1], [1, k])), ['matmul_nt_bf16 12 128x1'])
  t.same(await launches(product('f16', [1, m], [n, 1])), ['matmul_tn_f16 12 128x1'])
  t.same(await launches(product('f16', [1, m], [1, k])), ['matmul_tt_f16 12 128x1'])
  t.same(await launches(product('bf16', [7, 5], [9, 3], [1, 1, 1])), ['matmul_nt_bf16 6 128x1'])
  t.same(await launches(product('bf16', [7, 5], [9, 1], [1, 4, 3])), ['matmul_tn_bf16 6 128x1'])
})

/** What a model of a product of two inputs and of attention launches in each precision mode. */
const modes = `
  import { Model } from 'dgx-spark'
  import { makeGraph, makeNode } from '#lib/graph/graph.js'
  const input = (name, shape) => ({ name, type: { kind: 'tensor', dtype: 'f32', shape } })
  const inputs = [input('a', [3, 5, 7]), input('b', [3, 7, 9]), input('q', [1, 2, 5, 7])]
  const nodes = [makeNode('MatMul', ['a', 'b'], ['y']), makeNode('Attention', ['q', 'q', 'q'], ['z'])]
  const graph = makeGraph({ inputs, outputs: [{ name: 'y' }, { name: 'z' }], nodes })
  for (const precision of ['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4']) {
    const model = await Model.fromGraph(graph, { backend: 'cuda', precision })
    await model.run({ a: new Float32Array(105), b: new Float32Array(189), q: new Float32Array(70) })
    model.dispose()
  }
  console.log(null)`

t.test('the mode of a model decides what products of its values are formed of', async t => {
  const { env, lines } = machine(fakeDriver, { ...discrete, pointer: { alignment: 4 } })
  await scriptResult(modes, env)
  t.same(
    lines('launch').map(line => line.split(' ')[1]),
    ['f32', 'f16', 'bf16', 'bf16', 'bf16'].flatMap(compute =>
      compute === 'f32'
        ? ['matmul_f32', 'attention_f32']
        : [`matmul_nn_${compute}`, `attention_${compute}_64`],
    ),
  )
})

/** What a model of a quantized product launches. */
const quantized = `
  import { Constant, Model } from 'dgx-spark'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  const inputs = [{ name: 'a', type: tensorType('u8', [20, 33]) }]
  const initializers = new Map([['b', Constant.from('i8', [33, 70], new Int8Array(33 * 70))]])
  const graph = makeGraph({ inputs, outputs: [{ name: 'y' }], nodes: [makeNode('MatMulInteger', ['a', 'b'], ['y'])], initializers })
  const model = await Model.fromGraph(graph, { backend: 'cuda' })
  await model.run({ a: new Uint8Array(20 * 33) })
  console.log(null)`

t.test('quantized products of models take tensor cores', async t => {
  const { env, lines } = machine(fakeDriver, { ...discrete, pointer: { alignment: 4 } })
  await scriptResult(quantized, env)
  const launched = lines('launch').map(line => line.split(' ')[1])
  t.ok(launched.includes('linear_integer_mma_64_u8_i8'), `${launched}`)
  t.notMatch(`${launched}`, /matmul/)
})

t.test('operations of networks', async t => {
  const shape = `batch: 2, image: [9, 8], kernel: [3, 3], out: [9, 8], strides: [1, 1], dilations: [1, 1],
    padsBegin: [1, 1], x: f32(2 * 70 * 72), dy: f32(2 * 66 * 72), residual: undefined, bias: undefined,
    dx: f32(2 * 70 * 72), dweight: f32(66 * 630), y: f32(2 * 70 * 72)`
  const weight = (rows: number, cols: number) =>
    `weight: { format: 'f32', rows: ${rows}, cols: ${cols}, data: f32(${rows * cols}) }`
  const conv = (op: string) => `run('${op}', 'f32', { ${shape}, groups: 1, ${weight(66, 630)} })`
  t.same(await launches(conv('conv')), ['conv_f32 6 256x1']) // 2 tiles of filters by 3 of positions
  const laidOut = (compute: string) =>
    `run('conv', 'f32', { ${shape}, groups: 1, weight: { format: 'f32', rows: 66, cols: 630, data: f32(0) },
      compute: '${compute}', channelsLast: new Uint16Array(66 * 672) })`
  t.same(await launches(laidOut('bf16')), [
    'conv_image_bf16 9 256x1', // 3 tiles of 144 pixels by 3 of 72 channels
    'conv_channels_last_bf16_64 6 128x1',
  ])
  t.same(await launches(laidOut('f16')), ['conv_image_f16 9 256x1', 'conv_channels_last_f16_64 6 128x1'])
  await t.rejects(launches(laidOut('f32')), /channelsLast is for a compute of bf16 or f16/)
  const last = `run('conv', 'f32', { ${shape}, groups: 1, weight: { format: 'f32', rows: 72, cols: 648, data: f32(0) },
    compute: 'bf16', channelsLast: new Uint16Array(72 * 672), x: new Uint16Array(2 * 72 * 72), xDtype: 'bf16',`
  const y = 'new Uint16Array(2 * 72 * 72)'
  const alone = ['conv_channels_last_bf16_64 6 128x1']
  t.same(await launches(`${last} y: ${y}, yDtype: 'bf16' })`), alone, 'nothing is packed')
  t.same(await launches(`${last} y: f32(2 * 72 * 72), yChannelsLast: ${y} })`), alone)
  await t.rejects(launches(`${last} xDtype: 'f16' })`), /xDtype is for channelsLast in the same numbers/)
  await t.rejects(
    launches(`${last} y: ${y}, yDtype: 'f16' })`),
    /yDtype is for channelsLast in the same numbers/,
  )
  const tiles = (channels: number) =>
    `run('conv', 'f32', { ${shape}, groups: 1, weight: { format: 'f32', rows: 80, cols: ${channels * 9}, data: f32(0) },
      compute: 'bf16', channelsLast: new Uint16Array(1280 * ${channels}), inTiles: true, x: f32(144 * ${channels}), y: f32(80 * 144) })`
  // 2 images, 2 blocks of 9 lines and 2 of 80 filters
  t.same(await launches(tiles(48)), ['conv_image_bf16 6 256x1', 'conv_winograd_bf16 8 256x1'])
  await t.rejects(launches(tiles(40)), /of 16 · n channels and filters/)
  const halves = "x: new Uint16Array(2 * 70 * 72), xDtype: 'bf16' })"
  const ragged = laidOut('bf16').replace(/ }\)$/, `, ${halves}`)
  await t.rejects(launches(ragged), /with groups of 8 · n channels/)
  t.same(await launches(conv('convBackward')), [
    'conv_transposed_f32 6 256x1',
    'conv_weight_gradient_f32 20 256x1',
    'conv_bias_gradient_f32 66 256x1',
  ])
  const gradient = (compute: string, batch: number) =>
    `run('convBackward', 'f32', { ${shape}, groups: 1, ${weight(66, 630)}, batch: ${batch}, compute: '${compute}',
      x: f32(${batch * 70 * 72}), dy: f32(${batch * 66 * 72}), dx: undefined, dbias: undefined })`
  t.same(await launches(gradient('f32', 40)), [
    'conv_weight_gradient_f32 240 256x1', // 2 x 10 tiles, 12 chunks of 256 positions
    'conv_add_spans_f32 163 256x1',
  ])
  t.same(await launches(gradient('bf16', 2)), ['conv_pack_gradient 6 256x1', 'conv_mma_gradient_64 20 128x1'])
  t.same(await launches(gradient('f16', 40)), [
    'conv_pack_half_gradient 93 256x1', // 6 spans of 480 positions
    'conv_mma_half_gradient_64 120 128x1',
    'conv_add_spans_f32 163 256x1',
  ])
  t.same(await launches(`run('conv', 'f32', { ${shape}, groups: 66, ${weight(66, 9)} })`), [
    'conv_direct_f32 38 256x1', // a thread for each of 66 · 2 · 72
  ])
  const norm = 'groups: 1, inner: 1, rows: 7, cols: 5, centered: true, eps: 1, invStd: f32(7), mean: f32(7)'
  const arrays =
    'x: f32(35), y: f32(35), dy: f32(35), dx: f32(35), dscale: f32(5), scale: undefined, bias: undefined'
  t.same(await launches(`run('norm', 'f32', { ${norm}, ${arrays} })`), ['norm_f32 7 256x1'])
  t.same(await launches(`run('normBackward', 'f32', { ${norm}, ${arrays} })`), [
    'norm_backward_f32 7 256x1',
    'norm_columns_gradient_f32 1 32x8',
  ])
  const heads = '[0, 0, 4]'
  const attention = `batch: 1, heads: 4, kvHeads: 2, queries: 9, keys: 35, depth: 4, valueDepth: 4, scale: 1, q: f32(99),
    k: f32(140), v: f32(140), y: f32(99), dy: f32(99), dq: f32(99), dk: f32(140), logSum: f32(36), qStrides: ${heads},
    kStrides: ${heads}, vStrides: ${heads}, yStrides: ${heads}`
  t.same(await launches(`run('attention', 'f32', { ${attention} })`), ['attention_f32 4 256x1'])
  const inBf16 = (more: string) => `run('attention', 'f32', { ${attention}, compute: 'bf16', ${more} })`
  t.same(await launches(inBf16('')), ['attention_bf16_64 2 128x1'])
  const rows = (depth: number) =>
    `depth: ${depth}, queries: 33, q: f32(640), k: f32(640), v: f32(640), y: f32(640)`
  t.same(await launches(inBf16(`${rows(64)}, logSum: undefined`)), ['attention_bf16_64 4 128x1'])
  t.same(await launches(inBf16(`${rows(65)}, logSum: undefined`)), ['attention_bf16_128 4 128x1'])
  t.same(await launches(inBf16(`${rows(129)}, logSum: undefined`)), ['attention_bf16_256 4 128x1'])
  t.same(await launches(inBf16(`${rows(257)}, logSum: undefined`)), ['attention_f32 10 256x1'])
  t.same(await launches(`run('attentionBackward', 'f32', { ${attention} })`), [
    'attention_products_f32 5 256x1',
    'attention_query_gradient_f32 4 256x1',
    'attention_key_gradient_f32 6 256x1',
  ])
  const backward = (more: string) =>
    launches(`run('attentionBackward', 'f32', { ${attention}, compute: 'f16', ${more} })`)
  const packed = Array(4).fill('attention_pack_f16 1 256x1')
  t.same(await backward(''), [
    'attention_products_f32 5 256x1',
    ...packed,
    'attention_query_gradient_f16_64 2 128x1', // 2 heads of 9 queries meet a head of keys
    'attention_key_gradient_f16_64 2 128x1',
  ])
  const onlyKeys = `queries: 33, keys: 65, dq: undefined, dk: f32(640), dy: f32(640), logSum: f32(132)`
  const long = (depth: number) => `${rows(depth)}, ${onlyKeys}`
  t.same((await backward(long(65))).at(-1), 'attention_key_gradient_f16_128 4 128x1')
  t.same((await backward(long(129))).at(-1), 'attention_key_gradient_f32 10 256x1')
})

t.test('a long sum of few tiles is cut', async t => {
  const weight = `weight: { format: 'f32', rows: O, cols: 1300, data: f32(O * 1300) }`
  t.same(await launches(`run('linear', 'f32', { ${weight}, x: f32(T * 1300) })`), [
    'linear_f32 36 256x1', // 3 x 2 tiles, 6 chunks of 256
    'linear_add_parts_f32 52 256x1',
  ])
})

t.test('operations in an order', async t => {
  const rows = `fn: 'add', dtype: 'f32', shape: [3, 19, 11], strides: [77, 0, 1], indexStrides: [0, 1, 0], steps: [11],
    limits: [7], indices: new BigInt64Array(19), updates: f32(627), y: f32(231)`
  t.same(await launches(`run('scatter', 'f32', { ${rows} })`), ['scatter_float 1 256x1']) // 33 lanes
  const top = (size: number, inner: number) =>
    launches(`run('topK', 'f32', { dtype: 'f64', outer: 3, size: ${size}, inner: ${inner}, k: 2, largest: true,
      lastFirst: false, x: new Float64Array(${3 * size * inner}), indices: new BigInt64Array(${6 * inner}) })`)
  t.same(await top(64, 99), ['top_k_each_double 2 256x1'])
  t.same(await top(65, 99), ['top_k_double 297 256x1'])
  const grid = `interpolation: 'linear', outOfImage: 'zeros', alignCorners: false, batch: 2, channels: 3, points: 99,
    image: [3, 5], x: f32(90), grid: f32(396), y: f32(594)`
  t.same(await launches(`run('gridSample', 'f32', { ${grid} })`), ['grid_sample_f32 3 256x1'])
  const gru = `cell: 'gru', functions: [...Array(4)].map(() => ({ fn: 'tanh' })), directions: 2, steps: 2, batch: 3,
    hidden: 5, gates: f32(180), recurrence: f32(150), lastH: f32(30), y: f32(60), scratch: f32(120)`
  t.same(await launches(`run('recurrent', 'f32', { ${gru} })`), ['recurrent_f32 6 256x1'])
})

t.test('no tokens', async t => {
  t.same(await launches(`run('linear', 'f32', { tokens: 0 })`), [])
  const zeroed = await launches(`run('linearBackward', 'f32', { tokens: 0 })`)
  t.same(zeroed, [tiles('linear_backward_f32', O, I), 'column_sums_finish_f32 1 256x1'])
})
