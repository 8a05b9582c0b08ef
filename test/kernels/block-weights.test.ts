// Weights in block formats: panels against TypeScript, and products and rows against the decoded weight.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { parseSafetensors } from 'dgx-spark'
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { blockWeight } from '#lib/weights/block-weight.js'
import { decodeBlocks } from '#lib/weights/blocks/decode.js'
import { type BlockFormat, blockFormats } from '#lib/weights/blocks/formats.js'
import { isPackedAsStored } from '#lib/weights/blocks/layouts.js'
import { decodeWeight, weightBytes } from '#lib/weights/encode.js'
import { blockWeightFormats, formatInfo, kernelFormats } from '#lib/weights/formats.js'
import { inRows, panelSizes } from '#lib/weights/panels.js'
import { identical, maxAbs, within } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'
import { storedBytes } from '../fixtures/weights/stored-bytes.js'

const addon = requireAddon()
const cpu = openCpuKernels()
t.teardown(() => addon.setThreads(0))

/** Rows of the weight, and blocks of a row: within a panel, at its edge, and beyond a chunk of 256 columns. */
const shapes = [
  [1, 1],
  [31, 2],
  [33, 3],
  [70, 5],
  [0, 1],
  [3, 0],
] as const

function linear(weight: Weight, tokens: number, x: Float32Array): Float32Array {
  const y = new Float32Array(tokens * weight.rows).fill(Number.NaN)
  addon.run('linear', { weight, tokens, x, y })
  return y
}

for (const format of blockWeightFormats) {
  const { block } = formatInfo(format)

  t.test(`${format}: panels`, async t => {
    for (const [rows, blocks] of shapes) {
      const weight = randomWeight(randomGenerator(rows + blocks), format, rows, blocks * block)
      const packed = await holdWeight(cpu, weight)
      const twin = new Uint8Array(panelSizes(weight).data).fill(77)
      jsKernels.runSync('packWeight', { weight, data: twin })
      t.strictSame(packed.data, twin, `${rows} x ${blocks} blocks as in TypeScript`)
      t.strictSame(inRows(packed).data, weight.data, 'and back')
    }
    const weight = randomWeight(randomGenerator(9), format, 64, 1024)
    const packed = await holdWeight(cpu, weight)
    const [bytes, stored] = [weightBytes(packed), weightBytes(weight)]
    if (isPackedAsStored(format)) t.equal(bytes, stored, 'panels are as large')
    else t.ok(bytes <= 1.2 * stored, 'panels are about as large')
  })

  t.test(`${format}: products are those of the decoded weight`, async t => {
    for (const [rows, blocks] of shapes) {
      const cols = blocks * block
      const random = randomGenerator(rows * 7 + cols)
      const weight = randomWeight(random, format, rows, cols)
      const packed = await holdWeight(cpu, weight)
      const decoded: Weight = { format: 'f32', rows, cols, data: decodeWeight(weight) }
      const all = uniform(random, 33 * cols)
      const expected = linear(decoded, 33, all)
      for (const tokens of [1, 2, 3, 4, 5, 8, 9, 33]) {
        const x = all.subarray(0, tokens * cols)
        const same = expected.subarray(0, tokens * rows)
        identical(t, linear(packed, tokens, x), same, `${tokens} x ${rows} x ${cols}, panels`)
        identical(t, linear(weight, tokens, x), same, `${tokens} x ${rows} x ${cols}, rows`)
      }
      const y = new Float32Array(2 * rows)
      jsKernels.runSync('linear', { weight, tokens: 2, x: all, y })
      within(t, expected.subarray(0, 2 * rows), y, () => 3e-6 * (1 + maxAbs(y)), 'sums in double')
    }
  })

  t.test(`${format}: threads and gradients`, async t => {
    const [rows, cols] = [67, block * Math.ceil(5000 / block)]
    const random = randomGenerator(cols)
    const weight = randomWeight(random, format, rows, cols)
    const packed = await holdWeight(cpu, weight)
    const decoded: Weight = { format: 'f32', rows, cols, data: decodeWeight(weight) }
    const x = uniform(random, 5 * cols)
    for (const tokens of [1, 5]) {
      const expected = linear(decoded, tokens, x)
      for (const threads of [1, 3]) {
        addon.setThreads(threads)
        identical(t, linear(packed, tokens, x), expected, `${tokens} tokens, ${threads} threads`)
      }
    }
    addon.setThreads(0)
    const dy = uniform(random, 3 * rows)
    const gradient = (weight: Weight): Float32Array => {
      const dx = new Float32Array(3 * cols)
      addon.run('linearBackward', { weight, tokens: 3, x, dy, dx })
      return dx
    }
    identical(t, gradient(packed), gradient(decoded), 'dx, panels')
    identical(t, gradient(weight), gradient(decoded), 'dx, rows')
  })
}

for (const format of [...blockWeightFormats, ...kernelFormats]) {
  t.test(`${format}: rows of a table`, async t => {
    const [rows, cols] = [70, 768]
    const weight = randomWeight(randomGenerator(5), format, rows, cols)
    const packed = await holdWeight(cpu, weight)
    const values = decodeWeight(weight)
    const indices = BigInt64Array.of(0n, 69n, -1n, 33n, -70n, 33n)
    const expected = Float32Array.from({ length: 6 * cols }, (_, i) => {
      const row = (Number(indices[Math.floor(i / cols)]) + rows) % rows
      return values[row * cols + (i % cols)]!
    })
    for (const [kernels, table] of [
      [cpu, weight],
      [cpu, packed],
      [jsKernels, weight],
      [jsKernels, packed],
    ] as const) {
      const y = new Float32Array(6 * cols)
      kernels.runSync('gatherRows', { weight: table, count: 6, indices, y })
      // A code of NVFP4 is a negative zero.
      const positive = y.map(value => value + 0)
      identical(
        t,
        positive,
        expected.map(value => value + 0),
        `${kernels.backend}, ${table.layout ?? 'rows'}`,
      )
    }
  })
}

t.test('every vector of the grids, as in TypeScript', async t => {
  const [rows, cols] = [400, 768]
  for (const format of blockWeightFormats.filter(isPackedAsStored)) {
    const weight = randomWeight(randomGenerator(21), format, rows, cols)
    const values = decodeWeight(weight)
    const indices = BigInt64Array.from({ length: rows }, (_, row) => BigInt(row))
    for (const table of [weight, await holdWeight(cpu, weight)]) {
      const y = new Float32Array(rows * cols)
      cpu.runSync('gatherRows', { weight: table, count: rows, indices, y })
      identical(t, y, values, `${format}, ${table.layout ?? 'rows'}`)
    }
  }
})

t.test('what is refused', async t => {
  const weight = randomWeight(randomGenerator(1), 'q4_0', 3, 32)
  const y = new Float32Array(96)
  const x = y
  for (const kernels of [cpu, jsKernels]) {
    const { backend } = kernels
    for (const index of [3n, -4n]) {
      const args = { weight, count: 1, indices: BigInt64Array.of(index), y }
      t.throws(
        () => kernels.runSync('gatherRows', args),
        { code: 'ERR_ARGUMENT', message: /an index is/ },
        backend,
      )
    }
    const odd = { ...weight, cols: 33 } as Weight
    t.throws(
      () => kernels.runSync('linear', { weight: odd, tokens: 1, x, y }),
      { code: 'ERR_SHAPE' },
      backend,
    )
    const long = { ...weight, rows: 4 } as Weight
    t.throws(
      () => kernels.runSync('linear', { weight: long, tokens: 1, x, y }),
      { code: 'ERR_SHAPE' },
      backend,
    )
    const rounded = { weight, tokens: 1, x, y, compute: 'bf16' } as const
    t.throws(() => kernels.runSync('linear', rounded), { code: 'ERR_UNSUPPORTED', message: /q4_0/ }, backend)
    t.throws(() => kernels.runSync('weightNorm2', { weight, out: y }), /q4_0/, backend)
  }
  const bytes = storedBytes(new Uint8Array(36))
  t.throws(() => blockWeight('Q4_0', 2, 33, bytes), { code: 'ERR_SHAPE', message: /\[2, 33\] of Q4_0/ })
  t.throws(() => blockWeight('Q4_0', 3, 32, bytes), { code: 'ERR_SHAPE' })
  t.throws(() => blockWeight('Q9' as 'Q4_0', 2, 32, bytes), { code: 'ERR_ARGUMENT' })
  t.throws(() => blockWeight('Q8_K', 1, 0, storedBytes(new Uint8Array(0))), { code: 'ERR_UNSUPPORTED' })
  t.strictSame(blockWeight('Q4_0', 2, 32, bytes).read(), {
    format: 'q4_0',
    rows: 2,
    cols: 32,
    data: bytes.read(),
  })
})

t.test('formats of blocks are not types of elements', t => {
  const bytes = (): Uint8Array => new Uint8Array(64)
  const floats = (): Float32Array => new Float32Array(2)
  for (const kernels of [cpu, jsKernels])
    for (const format of blockWeightFormats) {
      const dtype = format as 'u8'
      const one = { shape: [2], aStrides: [1], bStrides: [1] }
      const calls: Record<string, () => void> = {
        srcDtype: () =>
          kernels.runSync('cast', {
            srcDtype: dtype,
            dstDtype: 'f32',
            count: 2,
            saturate: false,
            src: bytes(),
            dst: floats(),
          }),
        dstDtype: () =>
          kernels.runSync('cast', {
            srcDtype: 'f32',
            dstDtype: dtype,
            count: 2,
            saturate: false,
            src: floats(),
            dst: bytes(),
          }),
        dtype: () =>
          kernels.runSync('binary', { fn: 'add', dtype, ...one, a: bytes(), b: bytes(), y: bytes() }),
      }
      for (const [name, call] of Object.entries(calls))
        t.throws(call, {
          code: 'ERR_DTYPE',
          message: `${name} is not a dtype of elements: '${format}' is a format of weights in blocks; decode them first`,
        })
    }
  t.end()
})

t.test('blocks of other programs', { skip: noGolden }, async t => {
  const file = path.join(process.env.DGX_SPARK_TEST_DATA!, 'lm-golden/gguf-blocks/golden.safetensors')
  const { tensors } = parseSafetensors(readFileSync(file), file)
  let count = 0
  for (const [key, { data }] of tensors) {
    const name = /^(\w+)\.blocks$/.exec(key)?.[1] as BlockFormat | undefined
    if (!name) continue
    const { elements, bytes } = blockFormats[name]
    const blocks = data as Uint8Array
    const weight = blockWeight(name, blocks.length / bytes, elements, storedBytes(blocks)).read()
    t.not(weight.format, 'f32', name)
    t.ok(weightBytes(weight) <= blocks.length + 4, `${name} takes what it takes in its file`)
    const packed = await holdWeight(cpu, weight)
    const values = decodeBlocks(name, blocks)
    const y = new Float32Array(values.length)
    const indices = BigInt64Array.from({ length: weight.rows }, (_, row) => BigInt(row))
    for (const table of [weight, packed]) {
      cpu.runSync('gatherRows', { weight: table, count: weight.rows, indices, y })
      const same = values.findIndex(
        (value, i) => value !== y[i] && !(Number.isNaN(value) && Number.isNaN(y[i])),
      )
      t.equal(same, -1, `${name}, ${table.layout ?? 'rows'}`)
    }
    count++
  }
  t.equal(count, 24)
})
